"""The handler of every API surface: from a request's bytes to the end of its reply.

A bare ASGI application, not a FastAPI route: it stands in front of the framework (`app.wiring`),
whose routing, dependencies and middleware cost 90 us a request and wrap `send` in three layers,
1.5 to 2 us a streamed chunk.

    answer -> admit (the key's limits) -> read (body, checks, model) -> serve (place, deadlines)
           -> ask (engines in turn) -> Exchange
"""

import asyncio
import random
import time
from functools import partial
from typing import Any, Final
from weakref import proxy

from starlette.types import Receive, Scope, Send

from app.access.accounts import Accounts, unix_now
from app.api.embeddings import Embeddings
from app.api.surface import Surface
from app.api.tool_choice import NOT_KEPT
from app.config.config import Config
from app.engines.backend import Route
from app.engines.pool import EnginePool
from app.errors.render import error_response
from app.errors.translate import as_internal_error, bug_behind, forget_frames
from app.errors.tree import BadHTTP, ContextExceeded, EngineBroke, MannersError, Unavailable, UpstreamError
from app.proxy.accounting import RequestAccounting
from app.proxy.admission import AdmissionQueue, Uploads
from app.proxy.context import ID_SEPARATOR, RequestContext
from app.proxy.deadlines import ClientGone, Deadlines
from app.proxy.exchange import Exchange, complete_choices, pass_through
from app.proxy.reading import RequestReader
from app.proxy.reply_writer import ReplyWriter
from app.telemetry.log import Logger, where
from app.telemetry.metrics import Metrics

QUEUE_GAUGES: Final = {
    "manners_in_flight": "in_flight",
    "manners_queue_depth": "waiting",
    "manners_concurrency_limit": "concurrency",
    "manners_queue_limit": "room",
}
"""Gauges of a model's admission queue."""


class ProxyHandler:
    """Serves completions, on any surface. One per gateway; made by `app.wiring`."""

    def __init__(
        self,
        config: Config,
        pool: EnginePool,
        metrics: Metrics,
        log: Logger,
        accounting: RequestAccounting,
        accounts: Accounts,
    ) -> None:
        self._accounts = accounts
        self._pool = pool
        self._log = log
        self._accounting = accounting
        self._reader = RequestReader()
        self._uploads = Uploads(config.gateway.max_body_bytes)
        self._metrics = metrics
        self._queues: dict[str, AdmissionQueue] = {}
        self.apply(config)
        get, queues = metrics.child, self._queues.values()
        get("vllm:num_requests_running").set_function(lambda: sum(one.in_flight for one in queues))
        get("vllm:num_requests_waiting").set_function(lambda: sum(one.waiting for one in queues))
        get("vllm:kv_cache_usage_perc").set_function(lambda: max(q.in_flight / q.concurrency for q in queues))
        self.leaving = False  # a stop was requested: /readyz says 503, and requests are still served
        self.draining = False  # new requests are refused
        self._serving: set[Deadlines] = set()  # of what is served or waits
        self._ids: set[str] = set()  # by which engines know what is open

    def apply(self, config: Config) -> None:
        """Take the limits of a configuration with no model less; for requests that come from now on."""
        self._limits = config.gateway
        self._uploads.limit = config.gateway.max_body_bytes
        for name, model in config.models.items():
            if name in self._queues:
                self._queues[name].resize(model.concurrency, model.queue)
                continue
            waited = self._metrics.child("manners_queue_wait_seconds", name).observe
            queue = self._queues[name] = AdmissionQueue(model.concurrency, model.queue, waited=waited)
            for gauge, attribute in QUEUE_GAUGES.items():
                self._metrics.child(gauge, name).set_function(partial(getattr, queue, attribute))

    def cut_off(self) -> None:
        """End what is still running, and tell each caller why."""
        for deadlines in self._serving:
            deadlines.cut_off()

    @property
    def in_flight(self) -> int:
        """Requests being served or waiting."""
        return sum(queue.in_flight + queue.waiting for queue in self._queues.values())

    async def answer(self, surface: Surface, scope: Scope, receive: Receive, send: Send) -> None:
        """Admit a request by its key's limits, read it, hold a slot, ask an engine, and account for it."""
        state, cycle = scope["state"], receive.__self__  # type: ignore[attr-defined]
        account = self._accounts.of(state.get("caller"))
        context = RequestContext(surface, state["headers"], state["request_id"], account)
        if context.request_id in self._ids:  # vLLM refuses an id that is open
            context.engine_id += f"{ID_SEPARATOR}{random.getrandbits(64):016x}"
            context.engine_headers["x-request-id"] = context.engine_id
        self._ids.add(context.engine_id)
        writer = ReplyWriter(context, cycle)
        try:
            async with Deadlines(cycle, self._serving) as context.deadlines:
                if account.shared is None:
                    context.admission = account.begin(unix_now())
                else:
                    context.admission = await account.shared.begin()
                await self._read(context, scope, receive, cycle)
                context.deadlines.timeouts = timeouts = context.model.timeouts
                queue = self._queues[context.parsed.chat.model]
                await queue.enter(timeouts.first_token or timeouts.total)
                try:
                    context.error = await self._ask(context, writer)
                finally:
                    queue.leave()
                    writer.close()
            self._log_bug(context, context.error)
        except (ClientGone, asyncio.CancelledError) as gone:
            context.error = gone
            if isinstance(gone, asyncio.CancelledError):
                raise
        except Exception as error:  # the request's edge: answer and log it; other streams go on
            await self._fail(context, as_internal_error(error), send, writer)
        finally:
            self._ids.discard(context.engine_id)
            context.leave()
            forget_frames(context.error)
            forget_frames((context.broken or context.filtered) if context.was_tried else None)
            self._accounting.closed(context)

    async def _read(self, context: RequestContext, scope: Scope, receive: Receive, cycle: Any) -> None:
        """Accept a request that can be served. Raises RequestError, Unavailable, Busy or ClientGone."""
        surface, method, state = context.surface, scope["method"], scope["state"]
        if method != "POST":
            message = f"{method[:16]} is not for {surface.path}: POST a request"
            raise BadHTTP(message, "method_not_allowed", allow="POST")
        peer = state.get("caller") or scope["client"][0]
        raw, held = await self._uploads.body(receive, state["headers"].get(b"content-length", b""), peer)
        start = time.perf_counter()
        cycle.flow.resume_reading()  # a large body has paused it, and a caller who left would not be noticed
        try:
            parsed = await self._reader.read(surface, raw, self._limits.max_messages)
        finally:
            self._uploads.give_back(peer, held)
        if self.draining:
            raise Unavailable("this gateway is shutting down; send the request to another")
        model = self._pool.model(parsed.chat.model, chats=not isinstance(surface, Embeddings))
        context.accept(parsed, model, start, self._limits)
        if self._accounting.tracing is not None:
            self._accounting.tracing.begin(context)
        if (reserved := context.reserve(len(raw), self._pool.context)) is not None:
            await reserved

    async def _ask(self, context: RequestContext, writer: ReplyWriter) -> MannersError | None:
        """Ask the live engine, and the fallbacks as long as the caller has seen nothing.

        Returns a fault that the stream carried, or that a sentence replaced. Raises the last engine's fault.
        """
        chat, deadlines = context.parsed.chat, context.deadlines
        route = self._pool.first(chat.model, context.parsed.body, chat.media)
        deadlines.next_engine = partial(self._next, proxy(context))  # no cycle: a request is free at its end
        try:
            while True:
                context.try_engine(route)
                deadlines.patience = route.patience
                route.backend.streams.add(deadlines)  # tokens of this reply show that the engine lives
                try:
                    await self._ask_one(context, writer)
                    break
                except ContextExceeded as fault:
                    # The request's own fault: no other engine is asked, and no engine is at fault.
                    if not context.asks_smaller(fault):
                        raise
                    self._log_again("asked_again", context, fault)
                except UpstreamError as fault:
                    route = self._after(context, fault)
                finally:
                    context.route.backend.streams.discard(deadlines)
            if isinstance(context.broken, UpstreamError):
                context.record_failure(context.broken)
            elif context.broken is None:
                route.backend.ended(context.account.name, True)
            return context.broken or context.filtered
        finally:
            if context.failed and context.begun and not context.is_forced:
                for one in context.failed:
                    one.backend.ended(context.account.name, False)

    def _after(self, context: RequestContext, fault: UpstreamError) -> Route:
        """Where to ask after an engine's fault: another engine, or the same one once more. Raises the fault: nowhere."""
        context.record_failure(fault)
        if (other := self._next(context)) is not None:
            self._log_bug(context, fault)
            self._accounting.failed_over(context, fault)
            self._log_again("failover", context, fault)
            return other
        if isinstance(fault, EngineBroke) and fault.code == NOT_KEPT and context.asks_again(fault):
            self._log_again("asked_again", context, fault)
            return context.route
        raise fault

    async def _ask_one(self, context: RequestContext, writer: ReplyWriter) -> None:
        """Ask the engine of the context's route. Raises its fault."""
        try:
            if isinstance(context.surface, Embeddings):
                await pass_through(context, context.surface, writer)
            elif context.parsed.count == 1:
                await Exchange(context, writer).run()
            else:
                await complete_choices(context, writer)
        except asyncio.CancelledError:
            if (late := context.deadlines.late()) is None:
                raise
            raise late from None

    def _next(self, context: RequestContext) -> Route | None:
        """Another engine, as long as the caller has seen nothing."""
        if context.begun:
            return None
        parsed = context.parsed
        return self._pool.next(parsed.chat.model, context.engines, parsed.body, parsed.chat.media)

    def _log_again(self, event: str, context: RequestContext, fault: MannersError) -> None:
        """Log that an engine is asked after this fault."""
        log = self._log.warning if event == "failover" else self._log.info
        log(event, request_id=context.request_id, engine=context.engine, code=fault.code)
        forget_frames(fault)

    async def _fail(
        self, context: RequestContext, error: MannersError, send: Send, writer: ReplyWriter
    ) -> None:
        """Send the error: as a status while nothing has gone out, else in the stream."""
        context.error = error
        self._log_bug(context, error)
        if not context.begun:
            own = context.headers()
            await error_response(error, own, context.surface.path)({"type": "http"}, None, send)
        else:
            context.broken = error
            await writer.fail(error)

    def _log_bug(self, context: RequestContext, fault: BaseException | None) -> None:
        """Log where the gateway's own code raised, if that caused the fault."""
        bug = bug_behind(fault)
        if bug is not None:
            event = "unreadable_reply" if isinstance(fault, UpstreamError) else "internal_error"
            self._log.error(event, request_id=context.request_id, engine=context.engine, **where(bug))
