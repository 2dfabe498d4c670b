"""A reply in the format of the request's API: streamed as it comes, or whole at the end."""

from collections.abc import Sequence
from typing import Protocol

from app.proxy.context import Headers, RequestContext
from app.proxy.deadlines import Deadlines
from app.proxy.keepalive import KeepAlive
from app.proxy.response_writer import ResponseWriter, Send
from app.upstream.batching import IOBatch
from app.upstream.connection import EngineReply
from gates.reply.events import Event

STREAM_HEADERS: Headers = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-store"),
    (b"x-accel-buffering", b"no"),
]
JSON_HEADERS: Headers = [(b"content-type", b"application/json"), (b"cache-control", b"no-store")]


class ReplyWriter(Protocol):
    """Takes what the stream core makes certain, in order."""

    def texts(self, texts: Sequence[str]) -> None:
        """Plain texts of choice 0, where something has gone out before."""

    def events(self, events: Sequence[Event], is_last: bool) -> object:
        """A batch of events. `is_last`: the reply is over with them."""

    def answered_by(self, reply: EngineReply, anew: bool) -> None:
        """The engine goes on in another reply of its own: that one is to be paused for a slow reader.

        anew: nothing of the reply before it is to be shown.
        """

    async def deliver(self) -> None:
        """Wait until the caller has everything. Raises what a send raised."""

    def abandon(self) -> None:
        """Write nothing more."""


class StreamSource(Protocol):
    """What a stream comes from: an engine's reply, or several (`MultiCompletion`)."""

    batch: IOBatch

    def pause(self) -> None:
        """Send no more for now."""

    def resume(self) -> None:
        """Go on."""


class StreamWriter:
    """Writes to a caller who streams. The status line waits until there is something to show."""

    def __init__(
        self,
        context: RequestContext,
        deadlines: Deadlines,
        reply: StreamSource,
        send: Send,
        keepalive: KeepAlive | None,
    ) -> None:
        self._context = context
        self._deadlines = deadlines
        self._reply = reply
        self._keepalive = keepalive
        self._encoder = context.encoder = context.surface.encoder(context.head)
        if keepalive is None:
            self._out = ResponseWriter(send, reply.batch, self._pause, self._resume, deadlines.fail)
        else:
            self._out = keepalive.lend(self._pause, self._resume)

    def answered_by(self, reply: EngineReply, anew: bool) -> None:
        self._reply = reply
        if anew:
            context = self._context
            self._encoder = context.encoder = context.surface.encoder(context.head)

    def texts(self, texts: Sequence[str]) -> None:
        self._out.write(self._encoder.texts(texts))

    def events(self, events: Sequence[Event], is_last: bool) -> bool:
        """See `ReplyWriter`. Returns whether anything went out."""
        body = self._encoder.feed(events)
        if not body and not is_last:
            return False
        if not self._context.begun:
            self._begin()
        if self._keepalive is not None:
            self._keepalive.wrote(not is_last)
        self._out.write(body, is_last)
        self._context.begun = True
        return True

    async def deliver(self) -> None:
        await self._out.flushed()

    def abandon(self) -> None:
        if self._keepalive is None:
            self._out.abandon()
        else:
            self._keepalive.take_back()

    def _begin(self) -> None:
        """The status line, unless a keep-alive comment went before."""
        if self._keepalive is not None:
            self._keepalive.open()
        else:
            self._out.begin(STREAM_HEADERS + self._context.headers())

    def _pause(self) -> None:
        self._reply.pause()
        self._deadlines.full()

    def _resume(self) -> None:
        self._reply.resume()
        self._deadlines.free()


class WholeWriter:
    """Writes to a caller who wants the whole reply."""

    def __init__(self, context: RequestContext, deadlines: Deadlines, send: Send) -> None:
        self._context = context
        self._deadlines = deadlines
        self._send = send
        self._collector = context.surface.collector(context.head)

    def answered_by(self, reply: EngineReply, anew: bool) -> None:
        """See `ReplyWriter`. It is never paused."""
        if anew:
            context = self._context
            self._collector = context.surface.collector(context.head)

    def texts(self, texts: Sequence[str]) -> None:
        self._collector.texts(texts)

    def events(self, events: Sequence[Event], is_last: bool) -> None:
        self._collector.feed(events)

    async def deliver(self) -> None:
        await send_whole(self._collector.message(), self._context, self._deadlines, self._send)

    def abandon(self) -> None:
        """Nothing goes out before the end."""


def writer_for(
    context: RequestContext, deadlines: Deadlines, send: Send, keepalive: KeepAlive | None, reply: EngineReply
) -> ReplyWriter:
    """The writer to the caller of a request for one choice."""
    if context.stream:
        return StreamWriter(context, deadlines, reply, send, keepalive)
    return WholeWriter(context, deadlines, send)


async def send_whole(body: bytes, context: RequestContext, deadlines: Deadlines, send: Send) -> None:
    """A reply in one piece of JSON."""
    headers = [*JSON_HEADERS, (b"content-length", b"%d" % len(body)), *context.headers()]
    with deadlines.waiting():
        context.begun = True
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": body})
