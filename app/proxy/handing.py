"""An exchange without words: the engine's whole reply is handed on, under our model's name."""

import time
from collections.abc import Mapping

from app.api.surface import HandsOn
from app.engines.pool import Route
from app.proxy.deadlines import Lifeline
from app.proxy.exchange import JSON_HEADERS, Exchange
from app.proxy.outlet import Send
from app.proxy.relay import status_error
from app.upstream.connection import BodyReader


class HandOn(Exchange):
    """For surfaces that hand on. The whole reply is due within the first token's time."""

    async def run(self, route: Route, line: Lifeline, send: Send, trace: Mapping[str, str]) -> None:
        """Ask the engine and hand its reply on. Raises what the engine did wrong."""
        assert isinstance(self.surface, HandsOn)
        self.overhead = time.perf_counter() - self.clocks.start - self.queued
        url = route.url + self.surface.engine_path
        async with line.attempt(), route.upstream.ask(url, self.body, trace) as reply:
            if reply.status != 200:
                raise await status_error(reply, self.surface.engine_path)
            whole = BodyReader()
            reply.pour(whole)
            body, self.usage = self.surface.hand_on(await whole.done, self.head.model)
            if route.kind == "embeddings":  # of one that should stream, a vector proves nothing
                route.vouch()
            line.over()
            headers = [*JSON_HEADERS, (b"content-length", b"%d" % len(body)), *self.headers]
            with line.waiting():
                self.begun = True
                await send({"type": "http.response.start", "status": 200, "headers": headers})
                await send({"type": "http.response.body", "body": body})
            self.ended = time.perf_counter()
