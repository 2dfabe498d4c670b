"""What one exchange needs, and what became of it: the record that the books are made from."""

import asyncio
import contextlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from app.api.surface import Asked, Encoder, Surface
from app.api.thinking_budget import ThoughtLimit, Why
from app.engines.pool import Route
from app.errors.tree import EngineBroke, MannersError
from app.proxy.deadlines import Lifeline
from app.proxy.keepalive import Pulse
from app.proxy.outlet import Send
from app.stream.audit import ReplyAudit
from app.stream.clocks import Clocks
from app.stream.encode import ReplyHead, error_frame
from app.stream.events import Usage
from app.stream.meter import ThoughtMeter
from app.stream.pipeline import StreamPolicy

FINISH_SECONDS = 1.0
"""How long the end of a finished reply may take before its connection is given up instead."""
MAX_ERROR_BYTES = 64 << 10

STREAM_HEADERS = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-store"),
    (b"x-accel-buffering", b"no"),
]
JSON_HEADERS = [(b"content-type", b"application/json"), (b"cache-control", b"no-store")]


@dataclass(frozen=True)
class ReplyBudget:
    """What one reply of an engine may amount to; more than that is `upstream_too_large`.

    stream_bytes: of a streamed body, with all that is not speech. reply_bytes: of what it says (text,
    thoughts, tool calls), about as much as it takes in memory until it is over (`Pipeline.size`).
    """

    stream_bytes: int = 32 << 20
    reply_bytes: int = 4 << 20

    def exceeded(self) -> EngineBroke:
        """The error."""
        return EngineBroke(
            f"the engine's reply is too large: more than {self.stream_bytes} bytes, or {self.reply_bytes} of speech",
            "upstream_too_large",
        )


@dataclass
class Exchange(ABC):
    """What one request needs, and what became of it. Times are `time.perf_counter` seconds."""

    surface: Surface
    asked: Asked
    head: ReplyHead
    stream: bool
    policy: StreamPolicy
    body: bytes
    headers: list[tuple[bytes, bytes]]  # of ours, for the reply
    clocks: Clocks
    audit: ReplyAudit
    queued: float = 0.0  # seconds spent waiting for a place
    usage: Usage | None = None
    calls: list[str] = field(default_factory=list)
    overhead: float = 0.0
    begun: bool = False  # some of the reply has gone out: no other engine may answer
    ended: float | None = None  # when the reply's last byte went out
    broken: MannersError | None = None  # told to the caller after the first byte
    encoder: Encoder | None = None  # of the stream that goes out
    limit: ThoughtLimit | None = None
    answer_body: Callable[[ThoughtMeter], bytes] | None = None  # what makes the engine answer at last
    cut: Why | None = None  # why its thought was ended, or should have been
    budget: ReplyBudget = ReplyBudget()
    pulse: Pulse | None = None  # what keeps the caller's connection alive, and owns it

    @property
    def is_open(self) -> bool:
        """Whether the status line has gone out: with the first of the reply, or with a sign of life."""
        return self.begun or (self.pulse is not None and self.pulse.opened)

    @abstractmethod
    async def run(self, route: Route, line: Lifeline, send: Send, trace: Mapping[str, str]) -> None:
        """Ask the engine and hand its reply on.

        Raises what the engine did wrong while nothing has gone out; afterwards the fault is told
        in the stream and kept in `broken`.
        """

    async def tell(self, error: MannersError, send: Send) -> None:
        """A fault after the first byte: one error frame, then the end, and no [DONE]."""
        self.broken = error
        if self.encoder is None and self.stream:
            self.encoder = self.surface.encoder(self.head, self.asked)
        fault = error_frame if self.encoder is None else self.encoder.fault
        out = fault(error.message, error.code, error.type)
        with contextlib.suppress(TimeoutError):  # a caller who does not read is not waited for
            async with asyncio.timeout(FINISH_SECONDS):
                await send({"type": "http.response.body", "body": out, "more_body": False})
