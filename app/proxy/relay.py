"""One exchange with words: a caller's request to an engine, and the engine's reply to the caller.

The status line waits until there is something to show, or an error to tell: an engine that fails
before its first visible token gives the caller a real HTTP status, not a 200 with an apology.
"""

import asyncio
import time
from collections.abc import Mapping

from app.engines.pool import Route
from app.errors.translate import from_status
from app.errors.tree import MannersError
from app.proxy.deadlines import Lifeline
from app.proxy.exchange import FINISH_SECONDS, MAX_ERROR_BYTES, Exchange
from app.proxy.flow import Collecting, Flow, Streaming
from app.proxy.outlet import Send
from app.stream.audit import unasked_thought
from app.upstream.connection import BodyReader, EngineReply
from deploy.engine.dialects import DIALECTS

MAX_JSON_FACTOR = 2
"""A whole reply in JSON may be so many times larger than what it says."""
ANSWER_PATH = "/v1/completions"
"""Where an engine goes on from the tokens of a prompt and a thought."""


class Relayed(Exchange):
    """Through the stream core, streamed or whole."""

    async def run(self, route: Route, line: Lifeline, send: Send, trace: Mapping[str, str]) -> None:
        """Ask the engine, twice if its thought had to be ended, and hand its reply on."""
        self.overhead = time.perf_counter() - self.clocks.start - self.queued
        flow: Flow | None = None
        path, body = self.surface.engine_path, self.body
        try:
            async with line.attempt():
                while flow is None or flow.begins_again:
                    if flow is not None:
                        assert self.answer_body is not None
                        path, body = ANSWER_PATH, self.answer_body(flow.meter)
                    async with route.upstream.ask(route.url + path, body, trace) as reply:
                        if reply.status != 200:
                            raise await status_error(reply, path)
                        if flow is None:
                            make = Streaming if self.stream else Collecting
                            flow = make(self, route, line, reply, send, trace)
                        else:
                            flow.begin_again(reply)
                        await self._carry(reply, flow, send)
        finally:
            if flow is not None:
                flow.abandon()
                self.calls = flow.pipeline.call_sources
                self.audit.dropped = flow.pipeline.dropped
                told = bool(DIALECTS[route.dialect].thinking(0))
                if kind := unasked_thought(self.policy, self.audit.stripped, self.body, path, told):
                    route.catch(kind)

    async def _carry(self, reply: EngineReply, flow: Flow, send: Send) -> None:
        """One reply of the engine to its end, and the caller's with it, if it is the last."""
        if reply.is_stream:
            reply.pour(flow)
        else:
            await self._read_whole(reply, flow)
        await flow.over
        if not flow.begins_again:
            await flow.deliver(send)
            self.ended = time.perf_counter()
            await _finish(reply)

    async def _read_whole(self, reply: EngineReply, flow: Flow) -> None:
        """The engine did not stream although it was asked to: its JSON goes the same way."""
        body = BodyReader(MAX_JSON_FACTOR * self.budget.reply_bytes)
        reply.pour(body)
        flow.whole(await body.done)


async def _finish(reply: EngineReply) -> None:
    """Read the last bytes behind `[DONE]`, so that the connection can be used again."""
    if not reply.complete and not reply.lost:
        rest = BodyReader(MAX_ERROR_BYTES)
        reply.pour(rest)
        await asyncio.wait([rest.done], timeout=FINISH_SECONDS)
        if rest.done.done():
            rest.done.exception()  # looked at: whatever it was, the caller has everything


async def status_error(reply: EngineReply, path: str) -> MannersError:
    """What an engine's error status means to the caller."""
    body = BodyReader(MAX_ERROR_BYTES)
    reply.pour(body)
    return from_status(reply.status, await body.done, path)
