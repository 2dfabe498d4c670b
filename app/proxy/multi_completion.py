"""Several choices of one request: `n`, or a list of prompts. Each is an exchange of its own with the same engine.

    Exchange 0 -> ChoiceWriter 0 --+
    Exchange 1 -> ChoiceWriter 1 --+-> MultiCompletion -> one encoder -> caller

Every choice has its own stream core, thought limit, reply budget and deadlines; only the total time is the whole
request's. The request's own slot runs the choices in turn; spare slots, if the caller's key still has some, run others
concurrently. All share the caller's connection, so a slow reader pauses all. The first fault ends the request: the
other choices are cancelled, and the engine stops generating them.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from functools import partial
from typing import Any

from msgspec.structs import replace

from app.api.joined import joined_message, joined_usage
from app.api.surface import Collector, Counts
from app.engines.backend import Route
from app.errors.translate import as_internal_error
from app.proxy.context import RequestContext
from app.proxy.deadlines import Deadlines
from app.proxy.exchange import Exchange
from app.proxy.keepalive import KeepAlive
from app.proxy.reply_writer import StreamWriter, send_whole
from app.proxy.response_writer import Send
from app.stream.audit import JoinedAudit
from app.upstream.batching import IOBatch
from app.upstream.connection import EngineReply
from gates.reply.events import Broken, Done, Event, Text, Usage

Place = Callable[[], AbstractAsyncContextManager[None]]
"""A further place, as soon as no other request wants it."""


class _Over(Exception):
    """A choice was broken off, and the caller has the error: end the others."""


class MultiCompletion:
    """Asks the context's engine for all choices and hands them on (`run`). It is the `StreamSource` of their common stream."""

    batch: IOBatch  # of the first reply

    def __init__(
        self,
        context: RequestContext,
        deadlines: Deadlines,
        send: Send,
        keepalive: KeepAlive | None,
        place: Place,
    ) -> None:
        self._context = context
        self._deadlines = deadlines
        self._send = send
        self._keepalive = keepalive
        self._place = place
        self._left = deque(range(context.parsed.count))  # choices that have not begun
        self._tasks: list[asyncio.Task[None]] = []
        self._waiting: set[asyncio.Task[None]] = set()  # those that have no place yet
        self._fault: Exception | None = None  # the first, which ended the others
        self._tried: list[RequestContext] = []  # of each choice that was begun
        self._writers: list[_ChoiceWriter | None] = [None] * context.parsed.count
        self._is_full = False
        self._is_over = False
        self._out: StreamWriter | None = None  # to a caller who streams, once the engine has answered

    async def run(self) -> None:
        """Ask for every choice and hand them on. Raises the first fault, unless the stream carried it."""
        try:
            try:
                async with asyncio.TaskGroup() as group:
                    helpers = [self._help] * (self._context.parsed.count - 1)
                    self._tasks = [group.create_task(self._kept(one)) for one in [self._work, *helpers]]
                if self._fault is not None and not isinstance(self._fault, _Over):
                    raise self._fault
            finally:
                self._gather()
            await self._deliver()
        finally:
            if self._out is not None:
                self._out.abandon()

    async def _kept(self, work: Callable[[], Awaitable[None]]) -> None:
        """Keep its errors from the group, which would cancel the request's own task: Python 3.11 cannot take that back."""
        me = asyncio.current_task()
        assert me is not None
        try:
            await work()
        except Exception as fault:
            self._end(fault)
        except asyncio.CancelledError as stray:
            if me.cancelling():
                raise
            self._end(as_internal_error(stray))  # a bug: this task was not cancelled

    def _end(self, fault: Exception) -> None:
        """The first fault ends the other choices."""
        if self._fault is None:
            self._fault = fault
            for task in self._tasks:
                if task is not asyncio.current_task():
                    task.cancel()

    async def _work(self) -> None:
        """Run unstarted completions in this request's slot."""
        while self._left:
            await self._exchange(self._left.popleft())
        for task in self._waiting:
            task.cancel()

    async def _help(self) -> None:
        """Run choices in a spare slot, one after the other, as long as the caller's key has a slot for them."""
        me, admission = asyncio.current_task(), self._context.admission
        assert me is not None and admission is not None  # it ends with the request, after all choices
        while self._left:
            self._waiting.add(me)
            async with self._place():
                self._waiting.discard(me)
                if not self._left or not admission.acquire_slot():
                    return
                try:
                    await self._exchange(self._left.popleft())
                finally:
                    admission.release_slot()

    async def _exchange(self, index: int) -> None:
        context = self._context.branch(index)
        self._tried.append(context)
        route: Route = context.route
        async with self._deadlines.branch() as deadlines:
            route.streams.add(deadlines)
            try:
                writer = partial(self._writer, index, context, deadlines)
                await Exchange(context, deadlines, self._send, None, writer).run()
            finally:
                route.streams.discard(deadlines)
        if context.broken is not None:
            raise _Over

    def _writer(
        self, index: int, context: RequestContext, deadlines: Deadlines, reply: EngineReply
    ) -> "_ChoiceWriter":
        if context.stream and self._out is None:
            self.batch = reply.batch
            self._out = StreamWriter(self._context, self._deadlines, self, self._send, self._keepalive)
        writer = self._writers[index] = _ChoiceWriter(self, index, context, deadlines, reply)
        if self._is_full:
            writer.pause()
        return writer

    def show(self, events: Sequence[Event]) -> bool:
        """Write what of these events a streaming caller sees; whether that was anything."""
        if self._is_over:
            return False
        assert self._out is not None
        self._is_over = isinstance(events[-1], Broken | Done)
        if self._is_over:
            self._deadlines.over()
        return self._out.events(events, self._is_over)

    def _gather(self) -> None:
        """The facts of all choices as those of one reply; clocks and tokens are those of the choice whose text came first."""
        context, tried = self._context, self._tried
        if not tried:
            return
        first = min(tried, key=lambda one: one.clocks.first_content or one.clocks.first_token or float("inf"))
        context.clocks, context.queued, context.overhead = first.clocks, first.queued, first.overhead
        context.clocked_tokens = 0 if first.usage is None else first.usage.tokens("completion_tokens")
        context.audit = JoinedAudit([one.audit for one in tried])
        context.calls = [source for one in tried for source in one.calls]
        context.made += sum(one.made if one.usage is None else Counts.of(one.usage).made for one in tried)
        context.hinted = next((one.hinted for one in tried if one.hinted), context.hinted)
        context.cut = next((one.cut for one in tried if one.cut), None)
        context.broken = next((one.broken for one in tried if one.broken is not None), None)
        context.filtered = next((one.filtered for one in tried if one.filtered is not None), None)
        usages = [one.usage for one in sorted(tried, key=lambda one: one.choice)]
        per_prompt = context.parsed.count // max(len(context.parsed.prompts), 1)
        context.usage = joined_usage(usages, per_prompt) if len(usages) == context.parsed.count else None

    async def _deliver(self) -> None:
        """All choices are over: the end of the stream, or the whole reply."""
        context = self._context
        async with self._deadlines.attempt():
            if not context.stream:
                self._deadlines.over()
                messages = [writer.collector.message() for writer in self._writers if writer is not None]
                await send_whole(
                    joined_message(messages, context.usage), context, self._deadlines, self._send
                )
            else:
                usage = [] if context.usage is None else [context.usage]
                self.show([*usage, Done()])
                assert self._out is not None
                await self._out.deliver()
        context.delivered(0)

    def pause(self) -> None:
        """See `StreamSource`."""
        self._is_full = True
        for writer in self._writers:
            if writer is not None:
                writer.pause()

    def resume(self) -> None:
        """See `StreamSource`."""
        self._is_full = False
        for writer in self._writers:
            if writer is not None:
                writer.resume()


class _ChoiceWriter:
    """The writer of one choice's exchange: its events go to the request's caller, under the choice's index."""

    def __init__(
        self,
        completion: MultiCompletion,
        index: int,
        context: RequestContext,
        deadlines: Deadlines,
        reply: EngineReply,
    ) -> None:
        self._completion = completion
        self._index = index
        self._context = context
        self._deadlines = deadlines
        self._reply = reply
        self._is_live = True
        self.collector = self._new_collector()

    def _new_collector(self) -> Collector:
        return self._context.surface.collector(self._context.head, self._context.parsed)

    def answered_by(self, reply: EngineReply, anew: bool) -> None:
        self._reply = reply
        if anew:
            self.collector = self._new_collector()

    def texts(self, texts: Sequence[str]) -> None:
        if self._context.stream:
            self._completion.show([Text(self._index, text) for text in texts])
        else:
            self.collector.texts(texts)

    def events(self, events: Sequence[Event], is_last: bool) -> None:
        """See `ReplyWriter`. Counts and ends are those of the whole request, which `MultiCompletion` tells."""
        if not self._context.stream:
            return self.collector.feed(events)
        shown = [self._indexed(event) for event in events if not isinstance(event, Usage | Done)]
        if shown and self._completion.show(shown):
            self._context.begun = True

    def _indexed(self, event: Any) -> Event:
        return event if type(event) is Broken else replace(event, choice=self._index)

    async def deliver(self) -> None:
        """Nothing to do: `MultiCompletion` delivers when all choices are over."""

    def abandon(self) -> None:
        self._is_live = False

    def pause(self) -> None:
        """The caller takes no more for now."""
        if self._is_live:
            self._reply.pause()
            self._deadlines.full()

    def resume(self) -> None:
        """The caller has taken everything."""
        if self._is_live:
            self._reply.resume()
            self._deadlines.free()
