"""An engine that plays a script: a real HTTP/1.1 server on a real socket, one script a request.

It knows nothing of the gateway. Each request for a completion takes the next script from `play`,
or a short greeting when there is none; a readiness probe and `GET /v1/models` are always answered.
What came is in `requests`, with the times at which it came, was answered, and was given up.

    engine = ScriptedEngine()
    async with engine:
        engine.play(Head(), Say(role()), Wait(0.1), Say(text("Hi.")), Say(finish()), Say(DONE))

The words of a script are in `tests.script`.
"""

import asyncio
import contextlib
import json
import os
import socket
import struct
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Self, cast

from app.engines.behaviour import QUESTIONS
from deploy.engine.probe import probe_body
from deploy.engine.questions import BUDGET_QUESTION, OFF_QUESTIONS, OFF_ROOM
from deploy.engine.samples import SAMPLES
from deploy.engine.vllm import shown
from tests.scale import PATIENCE
from tests.script import (
    Do,
    Framing,
    Hang,
    Head,
    Raw,
    Repeat,
    Reset,
    Say,
    Step,
    Tell,
    Until,
    Wait,
    finish,
    reply,
    status,
    text,
)

_PROBE = probe_body("", "openai")["messages"]
_BEHAVIOUR = [[{"role": "user", "content": question}] for question in QUESTIONS]
_BUDGET = [{"role": "user", "content": BUDGET_QUESTION}]
_OFF = [[{"role": "user", "content": question}] for question in OFF_QUESTIONS]
_PREFILL = [*_PROBE, {"role": "assistant", "content": "Hello"}]
_SHOWN = {medium: shown(part) for medium, part in SAMPLES.items()}
_OBEDIENT = {"choices": [{"message": {"role": "assistant", "content": "Hello."}, "finish_reason": "stop"}]}
_RENDER = ("/apply-template", "/tokenize", "/detokenize")


@dataclass(eq=False)
class Seen:
    """One request, and what became of it. Times are `time.perf_counter` seconds."""

    method: str
    path: str
    headers: dict[str, str]
    raw: bytes
    connection: int  # counts from 1: which connection it came on
    arrived: float
    marks: dict[str, float] = field(default_factory=dict)
    sent: int = 0  # bytes of body that were given to the socket
    finished: asyncio.Event = field(default_factory=asyncio.Event)  # the script came to its end
    gone: asyncio.Event = field(default_factory=asyncio.Event)  # the connection ended before that

    @property
    def body(self) -> dict[str, Any]:
        """The JSON that was sent."""
        return cast(dict[str, Any], json.loads(self.raw))

    @property
    def is_probe(self) -> bool:
        """Whether it is the readiness probe's request, or one of what an engine is asked at its start."""
        if not self.raw:
            return False
        return self.body.get("messages") in (_PROBE, _BUDGET, _PREFILL, *_OFF, *_SHOWN.values())


class ScriptedEngine:
    """`async with ScriptedEngine() as engine:`; then `play` scripts and look at `requests`."""

    def __init__(self) -> None:
        self.requests: list[Seen] = []  # without probes and GETs
        self.live = 0  # connections that are open
        self.accepted = 0  # connections since the start
        self.buffer: int | None = None  # of the kernel, for sending; a small one fills soon
        self.close_idle_after_reply = False  # drop the connection once a reply is over
        self.answers: dict[str, Any] = {}  # JSON by path (or "budget"): what it says of itself when asked
        self.metrics: Callable[[], str] | None = None  # what it has in /metrics
        self.probes: Sequence[Step] | None = None  # script for readiness probes; None: they stream
        self.probed = 0  # readiness probes since the start
        self.behaviour: Sequence[Step] | None = (
            None  # script for questions about its behaviour; None: it behaves
        )
        self.questioned = 0  # such questions since the start
        self.choose: Callable[[Seen], Sequence[Step] | None] = lambda _: None  # a script by what is asked
        self.echo = False  # say the last message twice, instead of any script
        self._scripts: deque[Sequence[Step]] = deque()
        self._always: Sequence[Step] = reply("Hello ", "there.")
        self._arrived = asyncio.Condition()
        self._connections: set[_Connection] = set()

    async def __aenter__(self) -> Self:
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(lambda: _Connection(self), "127.0.0.1", 0)
        self.port = int(self._server.sockets[0].getsockname()[1])
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        for connection in list(self._connections):
            connection.drop()
        await self._server.wait_closed()

    @property
    def url(self) -> str:
        """Where it listens, without /v1."""
        return f"http://127.0.0.1:{self.port}"

    def play(self, *steps: Step) -> None:
        """Script for the next request that has none yet."""
        self._scripts.append(steps)

    def always(self, *steps: Step) -> None:
        """Script for every request that has none of its own."""
        self._always = steps

    def forget(self) -> None:
        """As if new: no scripts, no requests."""
        self._scripts.clear()
        self.requests.clear()
        self.probes = None
        self._always = reply("Hello ", "there.")

    async def request(self, count: int = 1) -> Seen:
        """The `count`th request, once it is here."""
        async with asyncio.timeout(PATIENCE), self._arrived:
            await self._arrived.wait_for(lambda: len(self.requests) >= count)
        return self.requests[count - 1]

    def drop_connections(self) -> None:
        """Close every connection, idle or not."""
        for connection in list(self._connections):
            connection.drop()

    # What a connection calls.

    def _answer(self, name: str, otherwise: Sequence[Step]) -> Sequence[Step]:
        """The script that a test set for this probe, or the usual one."""
        script: Sequence[Step] = self.answers.get(name, otherwise)
        return script

    async def script_for(self, seen: Seen) -> Sequence[Step]:
        """Note a request and say how to answer it."""
        if seen.path in self.answers:
            if seen.path.startswith("/v1/chat/") and not seen.is_probe:
                await self._note(seen)
            return status(200, self.answers[seen.path])
        if seen.path in _RENDER:
            return status(404)
        if seen.path == "/metrics" and self.metrics is not None:
            return status(200, self.metrics().encode(), "text/plain")
        if seen.method == "GET":
            found = seen.path == "/v1/models"
            return status(200, {"object": "list", "data": [{"id": "scripted"}]}) if found else status(404)
        if seen.method == "POST" and seen.raw and seen.body.get("messages") in _BEHAVIOUR:
            self.questioned += 1
            return reply("Fine, thank you.") if self.behaviour is None else self.behaviour
        if seen.is_probe and seen.body.get("messages") == _PROBE and seen.body.get("stream"):
            self.probed += 1
            return reply("Hello") if self.probes is None else self.probes
        if seen.is_probe:
            if seen.body.get("max_tokens") == OFF_ROOM and seen.body.get("messages") in _OFF:
                return self._answer("off", status(200, _OBEDIENT))
            for medium, messages in _SHOWN.items():
                if seen.body.get("messages") == messages:
                    return self._answer(medium, status(400))
            budgeted = seen.body.get("messages") == _BUDGET
            if seen.body.get("messages") == _PREFILL:
                return self._answer("prefill", reply("Hello"))
            return self._answer("budget", reply("Hello")) if budgeted else reply("Hello")
        script = self.choose(seen) or (self._scripts.popleft() if self._scripts else self._always)
        if self.echo:
            word = seen.body["messages"][-1]["content"]
            script = (Head(), Say(text(f"{word} ")), Wait(0.005), Say(text(word)), Say(finish()))
        await self._note(seen)
        return script

    async def _note(self, seen: Seen) -> None:
        async with self._arrived:
            self.requests.append(seen)
            self._arrived.notify_all()

    def opened(self, connection: "_Connection") -> int:
        """A connection came; its number."""
        self._connections.add(connection)
        self.live += 1
        self.accepted += 1
        return self.accepted

    def closed(self, connection: "_Connection") -> None:
        """A connection ended."""
        self._connections.discard(connection)
        self.live -= 1


class _Connection(asyncio.Protocol):
    """One connection: requests in, one after the other, and their scripts out."""

    def __init__(self, engine: ScriptedEngine) -> None:
        self._engine = engine
        self._buffer = b""
        self._player: asyncio.Task[None] | None = None
        self._seen: Seen | None = None
        self._writable = asyncio.Event()
        self._writable.set()
        self._framing: Framing = "chunked"

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._number = self._engine.opened(self)
        if self._engine.buffer:
            self._set_option(socket.SO_SNDBUF, self._engine.buffer)
            self._transport.set_write_buffer_limits(high=self._engine.buffer)

    def connection_lost(self, error: Exception | None) -> None:
        self._engine.closed(self)
        self._writable.set()
        if self._seen is not None and not self._seen.finished.is_set():
            self._seen.gone.set()
        if self._player is not None:
            self._player.cancel()

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        head, end, rest = self._buffer.partition(b"\r\n\r\n")
        if not end:
            return
        request, *lines = head.decode("latin-1").split("\r\n")
        headers = {n.lower(): v.strip() for n, _, v in (line.partition(":") for line in lines)}
        length = int(headers.get("content-length", 0))
        if len(rest) < length:
            return
        self._buffer = rest[length:]
        method, path, _ = request.split(" ")
        self._seen = Seen(method, path, headers, rest[:length], self._number, time.perf_counter())
        self._player = asyncio.create_task(self._play(self._seen))

    def drop(self) -> None:
        """Close at once."""
        self._transport.abort()

    async def _play(self, seen: Seen) -> None:
        steps = await self._engine.script_for(seen)
        for step in steps:
            await self._step(step, seen)
        if self._framing == "chunked" and any(isinstance(step, Head) for step in steps):
            self._transport.write(b"0\r\n\r\n")
        seen.finished.set()
        if self._framing == "close" or self._engine.close_idle_after_reply:
            self._transport.close()

    async def _step(self, step: Step, seen: Seen) -> None:
        if isinstance(step, Head):
            self._framing = step.framing
            self._transport.write(_head(step))
        elif isinstance(step, Say):
            await self._writable.wait()
            if self._transport.is_closing():
                await asyncio.get_running_loop().create_future()  # nobody listens any more
            seen.sent += len(step.data)
            self._transport.write(self._framed(step.data))
            if step.mark:
                seen.marks[step.mark] = time.perf_counter()
        elif isinstance(step, Raw):
            self._transport.write(step.data)
        elif isinstance(step, Wait):
            await asyncio.sleep(step.seconds)
        elif isinstance(step, Until):
            await step.event.wait()
        elif isinstance(step, Repeat):
            while not step.until.is_set():
                await self._step(Say(step.data), seen)
                await asyncio.sleep(step.every)
        elif isinstance(step, Tell):
            step.event.set()
        elif isinstance(step, Do):
            await step.what(seen.sent)
        elif isinstance(step, Hang):
            await asyncio.get_running_loop().create_future()
        else:
            await self._end(seen, isinstance(step, Reset))

    async def _end(self, seen: Seen, reset: bool) -> None:
        seen.finished.set()
        if reset:
            await asyncio.sleep(0.005)  # what was said goes out first: loops collect their writes
            self._set_option(socket.SO_LINGER, struct.pack("ii", 1, 0))
            self._transport.abort()
        else:
            self._transport.close()
        await asyncio.get_running_loop().create_future()

    def _framed(self, data: bytes) -> bytes:
        return b"%x\r\n%b\r\n" % (len(data), data) if self._framing == "chunked" else data

    def _set_option(self, option: int, value: int | bytes) -> None:
        """On the socket itself: event loops hand out only a view of theirs."""
        view = self._transport.get_extra_info("socket")
        with contextlib.closing(socket.socket(fileno=os.dup(view.fileno()))) as own:
            own.setsockopt(socket.SOL_SOCKET, option, value)


def _head(head: Head) -> bytes:
    lines = [f"HTTP/1.1 {head.code} Scripted", f"content-type: {head.content_type}"]
    if head.framing == "chunked":
        lines.append("transfer-encoding: chunked")
    elif head.framing == "length":
        lines.append(f"content-length: {head.size}")
    lines += [f"{name}: {value}" for name, value in head.more]
    return "\r\n".join(lines).encode() + b"\r\n\r\n"
