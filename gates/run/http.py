"""The HTTP client of a run: sends one request and records the time of every read of its reply, undecoded.

The clock starts when a connection is open. aiohttp's parser is compiled: httpx2 recorded a read 0.2 ms later on the same host, and
several chunks of one packet with growing delay.
"""

import asyncio
import os
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from types import SimpleNamespace, TracebackType
from typing import Any, Final, Self

import aiohttp
import httpx2
from aiohttp.client_proto import ResponseHandler

from gates.contracts.errors import RunError
from gates.contracts.sample import Sample, SampleKey, TimedRead, TransportFault
from gates.run.target import Target

_HEADERS: Final = {
    "content-type": "application/json",
    "accept": "text/event-stream, application/json",
    "accept-encoding": "identity",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestTimeouts:
    """Timeouts in seconds: for connecting, between two reads (and before the first), and for a whole reply."""

    connect: float = 5.0
    idle: float = 60.0
    total: float = 300.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplyLimits:
    """The most that a reply may have: bytes, and lines of its body (each event of a stream has two)."""

    size: int = 32 << 20
    lines: int = 1 << 20


GATE_LIMITS: Final = ReplyLimits()


@dataclass(slots=True)
class Attempt:
    """One attempt at a request, in the terms of `Sample`. retry_after: the seconds that the server asks to wait, if it does."""

    started: str
    status: int | None = None
    headers_ns: int | None = None
    reads: list[TimedRead] = field(default_factory=list)
    ended_ns: int = 0
    fault: TransportFault | None = None
    retry_after: float | None = None

    def sample(
        self, key: SampleKey, request: Mapping[str, Any], retries: Sequence[TransportFault] = ()
    ) -> Sample:
        """The sample of a request whose last attempt this was."""
        return Sample(
            key=key,
            request=request,
            started=self.started,
            status=self.status,
            headers_ns=self.headers_ns,
            reads=tuple(self.reads),
            ended_ns=self.ended_ns,
            fault=self.fault,
            retries=tuple(retries),
        )


@dataclass(slots=True)
class _RequestClock:
    """A clock that is restarted whenever a connection was obtained, so that it counts from the last one."""

    began: int = field(default_factory=time.perf_counter_ns)

    def start(self) -> None:
        self.began = time.perf_counter_ns()

    def now(self) -> int:
        return time.perf_counter_ns() - self.began


class _BoundedReply(ResponseHandler):
    """A connection whose replies end at their limits, before more of them was parsed."""

    def __init__(self, loop: asyncio.AbstractEventLoop, limits: ReplyLimits) -> None:
        super().__init__(loop)
        self._limits = limits
        self._size = self._lines = 0

    def set_response_params(self, **params: Any) -> None:
        """Called before every request on the connection."""
        self._size = self._lines = 0
        super().set_response_params(**params)

    def data_received(self, data: bytes) -> None:
        self._size += len(data)
        self._lines += data.count(b"\n")
        most = self._limits
        if self._size <= most.size and self._lines <= most.lines:
            return super().data_received(data)
        fault = aiohttp.ClientPayloadError(f"a reply of more than {most.size} bytes or {most.lines} lines")
        if self._payload is not None:  # of one without a length, the end of the connection would be the end
            self._payload.set_exception(fault)
        self.set_exception(fault)
        if self.transport is not None:
            self.transport.abort()


class _BoundedConnector(aiohttp.TCPConnector):
    def __init__(self, limits: ReplyLimits) -> None:
        super().__init__(limit=0)
        self._factory = partial(_BoundedReply, self._loop, limits)  # type: ignore[assignment]  # a subclass's


class TimedClient:
    """Connections to all targets of a run: `async with TimedClient(timeouts) as client`. path: that is asked."""

    def __init__(
        self, timeouts: RequestTimeouts, path: str = "/v1/chat/completions", limits: ReplyLimits = GATE_LIMITS
    ) -> None:
        self._timeouts, self._path, self._limits = timeouts, path, limits

    async def __aenter__(self) -> Self:
        trace = aiohttp.TraceConfig()
        trace.on_connection_create_end.append(_connected)
        trace.on_connection_reuseconn.append(_connected)
        self._session = aiohttp.ClientSession(
            connector=_BoundedConnector(self._limits),
            timeout=aiohttp.ClientTimeout(
                total=None, sock_connect=self._timeouts.connect, sock_read=self._timeouts.idle
            ),
            cookie_jar=aiohttp.DummyCookieJar(),
            trace_configs=[trace],
            auto_decompress=False,
            trust_env=False,  # ignore proxies of the environment
        )
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._session.close()

    async def ask(self, target: Target, body: bytes) -> Attempt:
        """Send a request and read its reply to the end. Errors are recorded in the attempt and never raised."""
        attempt, clock = Attempt(datetime.now(UTC).isoformat(timespec="milliseconds")), _RequestClock()
        try:
            await self._warm(target)
            async with asyncio.timeout(self._timeouts.total):
                await self._exchange(target, body, attempt, clock)
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            attempt.fault = self._fault(error)
        attempt.ended_ns = clock.now()
        return attempt

    async def _exchange(self, target: Target, body: bytes, attempt: Attempt, clock: _RequestClock) -> None:
        async with self._session.post(
            f"{target.url.rstrip('/')}{self._path}",
            data=body,
            headers={**_HEADERS, **target.headers},
            ssl=target.tls or True,
            allow_redirects=False,
            trace_request_ctx=clock,
        ) as response:
            attempt.headers_ns, attempt.status = clock.now(), response.status
            attempt.retry_after = _seconds(response.headers.get("retry-after", ""))
            while data := await response.content.readany():
                attempt.reads.append(TimedRead(clock.now(), data))

    async def _warm(self, target: Target) -> None:
        """Open the connection, by a request for the list of models: llama-server closes one after a stream without notice, and a
        request sent at once would fail. Errors occur again, and are recorded, in the request itself.
        """
        url = f"{target.url.rstrip('/')}/v1/models"
        with suppress(aiohttp.ClientError, TimeoutError, OSError):
            async with (
                asyncio.timeout(self._timeouts.connect),
                self._session.get(
                    url,
                    headers=target.headers,
                    ssl=target.tls or True,
                    allow_redirects=False,
                    trace_request_ctx=_RequestClock(),
                ) as response,
            ):
                while await response.content.readany():
                    pass

    def _fault(self, error: Exception) -> TransportFault:
        """The transport fault for an exception; the order matters, because some are subclasses of others."""
        detail = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
        if isinstance(error, aiohttp.ClientConnectorError | aiohttp.ConnectionTimeoutError):
            return TransportFault("connect", detail)
        if isinstance(error, aiohttp.SocketTimeoutError):
            return TransportFault("timeout", f"nothing came for {self._timeouts.idle:g} s")
        if isinstance(error, TimeoutError):
            return TransportFault("timeout", f"not over after {self._timeouts.total:g} s")
        return TransportFault("broken", detail)


async def _connected(session: aiohttp.ClientSession, context: SimpleNamespace, params: Any) -> None:
    context.trace_request_ctx.start()


def _seconds(text: str) -> float | None:
    """A retry-after in seconds; None for none, and for a date, which no engine or model API sends."""
    return float(text) if text.isascii() and text.isdecimal() and len(text) < 7 else None


def read_key(
    *, variable: str | None = None, file: Path | None = None, environ: Mapping[str, str] = os.environ
) -> str:
    """The key from an environment variable or a file; "" if neither is given. Raises RunError, which never holds the key."""
    if variable is None and file is None:
        return ""
    where = f"the environment variable {variable}" if variable else str(file)
    try:
        key = environ.get(variable, "") if variable else file.read_text("utf-8") if file else ""
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
