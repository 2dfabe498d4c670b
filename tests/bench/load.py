"""The load client: keeps C streams going, checks every reply, and notes when its bytes came.

A process of its own: `python -m tests.bench.load RESULT`. It reads one JSON plan line from stdin,
connects, prints `ready`, starts at the next line, and writes the file RESULT (a pipe that somebody
made non-blocking takes 64 KiB and no more). It checks replies between streams, never in one.
"""

import asyncio
import gc
import json
import random
import re
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import httptools
import msgspec
import uvloop

from tests.bench import script

_FIRST_TEXT = re.compile(rb'"content":\s*"[^"]').search
STREAM_SECONDS = 60.0


@dataclass(frozen=True)
class Plan:
    """What to do. `pause` is the most seconds between two streams of a connection (uniform)."""

    port: int
    concurrency: int
    streams: int  # per connection
    tokens: int  # per stream
    paced: bool
    pause: float
    seed: int = 1


@dataclass
class Result:
    """What happened. Times in milliseconds."""

    streams: int = 0
    events: int = 0  # SSE events with content, as they arrived (a gateway may join some)
    wall: float = 0.0
    ttft: list[float] = field(default_factory=list)
    gaps: list[float] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)


def request(plan: Plan) -> bytes:
    """The bytes of the one request that is sent over and over."""
    messages = [
        {"role": "system", "content": "You are Annie. You speak in short sentences."},
        {"role": "user", "content": script.order(plan.tokens, plan.paced)},
    ]
    fields: dict[str, Any] = {"model": script.MODEL, "messages": messages, "max_tokens": 512}
    body = json.dumps({**fields, "stream": True, "stream_options": {"include_usage": True}}).encode()
    head = (
        f"POST /v1/chat/completions HTTP/1.1\r\nhost: 127.0.0.1:{plan.port}\r\n"
        f"authorization: Bearer {script.KEY}\r\ncontent-type: application/json\r\n"
        f"accept: text/event-stream\r\ncontent-length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


def spoken(body: bytes) -> tuple[str, int]:
    """The text of a streamed reply, and how many events carried it. Raises ValueError."""
    parts: list[str] = []
    for event in body.replace(b"\r\n", b"\n").split(b"\n\n"):
        if not event.startswith(b"data: {"):
            continue
        chunk = msgspec.json.decode(event[6:])
        if "error" in chunk:
            raise ValueError(str(chunk["error"])[:200])
        parts += [choice["delta"].get("content") or "" for choice in chunk["choices"]]
    if b"data: [DONE]" not in body[-64:]:
        raise ValueError("no [DONE]")
    return "".join(parts), sum(map(bool, parts))


class Client(asyncio.Protocol):
    """One connection: a stream, a check, a pause, the next stream."""

    def __init__(self, plan: Plan, result: Result, done: asyncio.Future[None], chance: random.Random) -> None:
        self._plan, self._result, self._done, self._chance = plan, result, done, chance
        self._request = request(plan)
        self._expected = script.text(plan.tokens)
        self._left = plan.streams
        self._loop = asyncio.get_running_loop()
        self._transport: Any = None
        self._watch: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    def connection_lost(self, error: Exception | None) -> None:
        if not self._done.done():
            self._give_up(f"connection lost: {error or 'closed by the server'}")

    def go(self) -> None:
        """Send the next request."""
        self._parser = httptools.HttpResponseParser(self)
        self._parts: list[bytes] = []
        self._last = 0.0
        self._over = False
        self._watch = self._loop.call_later(STREAM_SECONDS, self._give_up, "no end of a stream in 60 s")
        self._asked = time.perf_counter()
        self._transport.write(self._request)

    def data_received(self, data: bytes) -> None:
        now = time.perf_counter()
        if self._last:
            if b'"content"' in data:
                self._result.gaps.append((now - self._last) * 1e3)
                self._last = now
        elif _FIRST_TEXT(data):
            self._result.ttft.append((now - self._asked) * 1e3)
            self._last = now
        self._parser.feed_data(data)
        if self._over:
            self._check()

    def on_body(self, body: bytes) -> None:
        self._parts.append(body)

    def on_message_complete(self) -> None:
        self._over = True

    def _check(self) -> None:
        if self._watch:
            self._watch.cancel()
        if fault := self._fault(b"".join(self._parts)):
            self._give_up(fault)
        else:
            self._result.streams += 1
            self._next()

    def _fault(self, body: bytes) -> str:
        """What is wrong with a reply; empty if it is whole."""
        if self._parser.get_status_code() != 200:
            return f"HTTP {self._parser.get_status_code()}: {body[:200]!r}"
        try:
            text, events = spoken(body)
        except (ValueError, KeyError, TypeError, AttributeError) as error:  # any shape may come
            return f"a broken stream: {error!r}"
        self._result.events += events
        return "" if text == self._expected else f"another text: {text[:80]!r}"

    def _next(self) -> None:
        self._left -= 1
        if not self._left:
            self._done.set_result(None)
            self._transport.close()
        elif self._plan.pause:
            self._loop.call_later(self._chance.uniform(0.001, self._plan.pause), self.go)
        else:
            self.go()

    def _give_up(self, why: str) -> None:
        if self._watch:
            self._watch.cancel()
        if not self._done.done():
            self._result.errors.append(why)
            self._done.set_result(None)
        self._transport.abort()


async def drive(plan: Plan, start: Callable[[], None]) -> Result:
    """Connect, call `start` (which waits for the word), run the plan."""
    result, loop = Result(), asyncio.get_running_loop()
    chance = random.Random(plan.seed)
    clients, ends = [], []
    for _ in range(plan.concurrency):
        done: asyncio.Future[None] = loop.create_future()
        make = lambda done=done: Client(plan, result, done, chance)  # noqa: E731
        _, client = await loop.create_connection(make, "127.0.0.1", plan.port)
        clients.append(client)
        ends.append(done)
    start()
    gc.disable()
    began = time.perf_counter()
    for client in clients:
        loop.call_later(chance.uniform(0, plan.pause), client.go) if plan.pause else client.go()
    await asyncio.gather(*ends)
    result.wall = time.perf_counter() - began
    return result


def _wait_for_word() -> None:
    print("ready", flush=True)
    sys.stdin.readline()


def main(result: Path) -> None:
    """Read the plan, run it, write what happened."""
    plan = Plan(**json.loads(sys.stdin.readline()))
    result.write_text(json.dumps(asdict(uvloop.run(drive(plan, _wait_for_word)))))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
