"""A stream's writer over uvicorn's own cycle and flow control, and a transport that remembers."""

import asyncio
import logging
import time
from typing import Any

from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

from app.api.surface import ChatCompletions
from app.config.config import Timeouts
from app.proxy.context import RequestContext
from app.proxy.deadlines import Deadlines
from app.proxy.reply_writer import ReplyWriter
from app.stream.encode import ReplyHead
from app.telemetry.clocks import Clocks


class Cycle:
    """What our server's `receive` belongs to: a caller's request, read to its end."""

    def __init__(self) -> None:
        self.disconnected = False
        self.on_lost: Any = None


def deadlines(timeouts: Timeouts | None = None, cycle: Any = None) -> Deadlines:
    """Those of one request."""
    made = Deadlines(cycle or Cycle(), set())
    made.timeouts = timeouts or Timeouts()
    return made


LOG = logging.getLogger("uvicorn.error")


class Transport(asyncio.Transport):
    """Remembers what was written."""

    def __init__(self) -> None:
        super().__init__()
        self.out = b""
        self.closed = False

    def write(self, data: Any) -> None:
        self.out += bytes(data)

    def is_closing(self) -> bool:
        return self.closed

    def close(self) -> None:
        self.closed = True


class Caller:
    """A caller of chat completions who asked at `came`."""

    def __init__(self, line: Deadlines | None = None, came: float | None = None) -> None:
        context = RequestContext(ChatCompletions(), {}, "id")
        context.stream = True
        context.start = time.perf_counter() - 3600 if came is None else came
        context.head, context.clocks = ReplyHead("", 0, "annie", "strip"), Clocks(context.start)
        self.context, self.transport = context, Transport()
        self.flow = FlowControl(self.transport)
        cycle: Any = RequestResponseCycle(
            {"type": "http", "method": "POST"},  # type: ignore[typeddict-item]
            self.transport,
            self.flow,
            LOG,
            LOG,
            False,
            [],
            asyncio.Event(),
            False,
            True,
            lambda: None,
        )
        context.deadlines = line or deadlines()
        self.writer = ReplyWriter(context, cycle)
