"""The HTTP client of a run: sends one request and records the time of every read of its reply, undecoded.

Each request has a connection of its own, and its clock starts when that is open. A read's time is taken at the socket, before
anything is parsed. There a reply is also bounded: the client's parser takes some 50 us for an interim reply (1xx) or a chunk, however short,
and a flood of them would hold the event loop. So one read gives it little, and a reply has so many lines and no more.
"""

import asyncio
import os
import ssl
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import httpcore2
import httpx2

from gates.contracts.errors import RunError
from gates.contracts.sample import Sample, SampleKey, TimedRead, TransportFault
from gates.reply.reply import read_heard, read_reply, says_the_same
from gates.run.target import Hearing, Target

_HEADERS: Final = {
    "content-type": "application/json",
    "accept": "text/event-stream, application/json",
    "accept-encoding": "identity",
}


READ_BYTES: Final = 2048
"""The most that is parsed before other tasks get a turn."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplyLimits:
    """The most that a reply with its head may have: bytes, and lines (a chunk, an interim reply and an event have two each)."""

    size: int = 32 << 20
    lines: int = 1 << 20


GATE_LIMITS: Final = ReplyLimits()


class BoundedBackend(httpcore2.AsyncNetworkBackend):
    """Connects by the library's own backend. A connection is for one request; `on_read` is called when some of its reply came."""

    def __init__(self, limits: ReplyLimits, on_read: Callable[[], None] = lambda: None) -> None:
        self._own, self._limits, self._on_read = httpcore2.AnyIOBackend(), limits, on_read

    async def connect_tcp(self, host: str, port: int, *args: Any, **options: Any) -> Any:
        stream = await self._own.connect_tcp(host, port, *args, **options)
        return _BoundedStream(stream, self._limits, self._on_read)


class _BoundedStream:
    """A stream of the library; all but reading is its own."""

    def __init__(self, stream: Any, limits: ReplyLimits, on_read: Callable[[], None]) -> None:
        self._stream, self._limits, self._on_read = stream, limits, on_read
        self._size = self._lines = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        await asyncio.sleep(0)  # a TLS stream returns what it has buffered without a turn of the event loop
        data: bytes = await self._stream.read(min(max_bytes, READ_BYTES), timeout)
        self._on_read()
        self._size += len(data)
        self._lines += data.count(b"\n")
        most = self._limits
        if self._size > most.size or self._lines > most.lines:
            why = f"the reply has more than {most.size} bytes or {most.lines} lines"
            raise httpcore2.RemoteProtocolError(why)
        return data

    async def start_tls(self, *args: Any, **options: Any) -> "_BoundedStream":
        stream = await self._stream.start_tls(*args, **options)
        return _BoundedStream(stream, self._limits, self._on_read)


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestTimeouts:
    """Timeouts in seconds: for connecting, between two reads (and before the first), and for a whole reply."""

    connect: float = 5.0
    idle: float = 60.0
    total: float = 300.0


@dataclass(slots=True)
class Attempt:
    """One attempt at a request, in the terms of `Sample`. retry_after: the seconds that the server asks to wait, if it does."""

    started: str
    status: int | None = None
    headers_ns: int | None = None
    reads: list[TimedRead] = field(default_factory=list)
    ended_ns: int = 0
    fault: TransportFault | None = None
    retry_after: float = 0.0

    def sample(
        self, key: SampleKey, request: Mapping[str, Any], hearing: Hearing | None, *retries: TransportFault
    ) -> Sample:
        """The sample of a request whose last attempt this was, with what `hearing` makes of it."""
        reads = tuple(self.reads)
        came = (self.started, self.status, self.headers_ns, reads, self.ended_ns, self.fault)
        sample = Sample(key, request, *came, retries)
        if hearing is None or self.fault is not None or self.status != 200:
            return sample
        heard = replace(sample, heard=hearing(request, reads).decode())
        return sample if says_the_same(read_reply(sample), read_heard(heard)) else heard


@dataclass(slots=True)
class _RequestClock:
    """Nanoseconds since the connection was open; before that, since the clock was made."""

    began: int = field(default_factory=time.perf_counter_ns)
    read_ns: int = 0

    async def trace(self, event: str, info: object) -> None:
        """The library's trace: `event` is what it does next."""
        if event == "http11.send_request_headers.started":
            self.began = time.perf_counter_ns()

    def now(self) -> int:
        return time.perf_counter_ns() - self.began

    def read(self) -> None:
        """Something came from the socket."""
        self.read_ns = self.now()


@dataclass(frozen=True, slots=True)
class TimedClient:
    """Sends chat completions. It ignores the environment's proxies and follows no redirect."""

    timeouts: RequestTimeouts
    limits: ReplyLimits = GATE_LIMITS

    async def ask(self, target: Target, body: bytes) -> Attempt:
        """Send a request and read its reply to the end. Errors are recorded in the attempt and never raised."""
        attempt, clock = Attempt(datetime.now(UTC).isoformat(timespec="milliseconds")), _RequestClock()
        try:
            async with asyncio.timeout(self.timeouts.total):
                await self._exchange(target, body, attempt, clock)
        except TimeoutError:
            attempt.fault = TransportFault("timeout", f"not over after {self.timeouts.total:g} s")
        except httpcore2.ReadTimeout:
            attempt.fault = TransportFault("timeout", f"nothing came for {self.timeouts.idle:g} s")
        except (httpcore2.NetworkError, httpcore2.ProtocolError, httpcore2.TimeoutException) as error:
            connecting = isinstance(error, httpcore2.ConnectError | httpcore2.ConnectTimeout)
            detail = f"{type(error).__name__}: {error}".removesuffix(": ")
            attempt.fault = TransportFault("connect" if connecting else "broken", detail)
        attempt.ended_ns = clock.now()
        return attempt

    async def _exchange(self, target: Target, body: bytes, attempt: Attempt, clock: _RequestClock) -> None:
        url, times = f"{target.url.rstrip('/')}/v1/chat/completions", self.timeouts
        headers = {"host": urlsplit(url).netloc, **_HEADERS, **target.headers}
        waits = {"connect": times.connect, "read": times.idle, "write": times.idle}
        async with (
            httpcore2.AsyncConnectionPool(
                ssl_context=target.tls or system_tls(),
                max_keepalive_connections=0,
                network_backend=BoundedBackend(self.limits, clock.read),
            ) as pool,
            pool.stream(
                "POST",
                url,
                headers=list(headers.items()),
                content=body,
                extensions={"timeout": waits, "trace": clock.trace},
            ) as response,
        ):
            attempt.headers_ns, attempt.status = clock.read_ns, response.status
            said = {name.lower(): value.decode("latin-1") for name, value in response.headers}
            with suppress(ValueError):  # there is none, or a date, which no engine or model API sends
                attempt.retry_after = max(0.0, float(said.get(b"retry-after", "")))
            async for data in response.aiter_stream():
                if attempt.reads and attempt.reads[-1].at_ns == clock.read_ns:  # chunks that came together
                    data = attempt.reads.pop().data + data
                attempt.reads.append(TimedRead(clock.read_ns, data))


@lru_cache(1)
def system_tls() -> ssl.SSLContext:
    """Built once: it reads every root certificate, which takes tens of milliseconds."""
    return ssl.create_default_context()


def read_key(*, variable: str | None = None, file: Path | None = None) -> str:
    """The key from an environment variable or a file; "" if neither is given. Raises RunError, which never holds the key."""
    if variable is None and file is None:
        return ""
    where = f"the environment variable {variable}" if variable else str(file)
    try:
        key = os.environ.get(variable, "") if variable else file.read_text("utf-8") if file else ""
    except (OSError, UnicodeDecodeError) as error:
        raise RunError(f"{where}: no key could be read ({type(error).__name__})") from None
    key = key.strip()
    if not key.isascii() or not key.isprintable() or not key or " " in key:
        raise RunError(f"{where} holds no key; put the key there, on one line")
    return key


def first_model(url: str) -> str:
    """The first model that an engine lists. Raises RunError."""
    try:
        listed = httpx2.get(f"{url}/v1/models", timeout=60.0).raise_for_status().json()
        return str(listed["data"][0]["id"])
    except httpx2.HTTPError as error:
        raise RunError(f"{url}: no reply ({error}); is the engine up?") from None
    except (ValueError, KeyError, IndexError, TypeError):
        raise RunError(f"{url}: lists no model; name one with --model") from None
