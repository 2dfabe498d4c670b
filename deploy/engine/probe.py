"""Readiness probes: an engine is ready if it streams a generated token, or returns a vector where it serves embeddings.

`/health` answers 200 from an engine that hangs or has lost its GPU, and headers and the role chunk come before the first
token. So a probe waits for content, reasoning or a tool call, or for a vector of finite numbers.
"""

import asyncio
import math
import re
import time
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Any

import httpcore2
import msgspec

from deploy.core.engine_access import OPEN, EngineAccess
from deploy.core.engine_http import (
    HTTP_ERRORS,
    ask_engine,
    is_hosts_fault,
    plain_word,
    read_body,
    read_json,
)
from deploy.engine.dialects import DIALECTS
from deploy.engine.spec import Kind
from gates.contracts.dialect import Dialect
from gates.reply.chunks import MalformedChunk, parse_payload
from gates.reply.events import Broken, CallArguments, CallStart, Text, Thought
from gates.reply.sse import EventTooLong, SSEDecoder

STREAM_BYTES = 1 << 20
"""The longest stream of a probe, which requests four tokens."""
LINE_BYTES = 64 << 10
WORK_SECONDS = 2.0
SAID_CHARACTERS = 300
NAME_CHARACTERS = 512
"""The longest name of a model."""


class ProbeOutcome(StrEnum):
    """The outcome of one probe."""

    STREAMED = "streamed"
    EMBEDDED = "embedded"
    NOT_LISTENING = "not_listening"
    HOST_EXHAUSTED = "host_exhausted"
    """This host had no descriptor or no memory for the connection; it says nothing about the engine."""
    LOADING = "loading"
    ERROR = "error"
    STALLED = "stalled"


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeResult:
    """One probe's outcome.

    `detail` never quotes the engine and may be logged. `said` is the engine's own error message: for operators, never for a log.
    """

    verdict: ProbeOutcome
    detail: str = ""
    said: str = ""

    @property
    def ok(self) -> bool:
        return self.verdict in (ProbeOutcome.STREAMED, ProbeOutcome.EMBEDDED)

    @property
    def for_operators(self) -> str:
        """The outcome, the detail, and the engine's own message."""
        return ": ".join(part for part in (self.verdict, self.detail, self.said) if part)


class _Embedding(msgspec.Struct):
    embedding: Annotated[list[float], msgspec.Meta(min_length=1)]


class _Embeddings(msgspec.Struct):
    """A reply of `/v1/embeddings`, as far as a probe reads it."""

    data: Annotated[list[_Embedding], msgspec.Meta(min_length=1)]


@dataclass(slots=True)
class _Heard:
    """Whether a token has come, also for a probe that its deadline ends."""

    token: bool = False


def _error(detail: str, said: str = "") -> ProbeResult:
    shown = "".join(c if c.isprintable() else " " for c in said[:SAID_CHARACTERS])
    return ProbeResult(verdict=ProbeOutcome.ERROR, detail=detail, said=shown)


def probe_body(model: str, dialect: Dialect) -> dict[str, Any]:
    """The request body of a probe: short, constant, and with thinking off."""
    body: dict[str, Any] = {
        "model": model,
        "messages": [{"role": "user", "content": "Say hello."}],
        "max_tokens": 4,
        "temperature": 0,
        "stream": True,
    }
    if DIALECTS[dialect].has_thinking_switch:
        body["chat_template_kwargs"] = {"enable_thinking": False}
    return body


def embedding_body(model: str) -> dict[str, Any]:
    """The request body of a probe for embeddings; every engine returns numbers, not base64, by default."""
    return {"model": model, "input": "hello"}


async def probe(
    url: str,
    *,
    model: str,
    deadline_s: float,
    dialect: Dialect = "llama-server",
    kind: Kind = "chat",
    access: EngineAccess = OPEN,
) -> ProbeResult:
    """Request a few tokens (or a vector) from the engine at `url` and wait at most `deadline_s` for the first. Never raises.

    The stream is read to its end within the deadline and STREAM_BYTES, so that no half-read reply keeps a slot busy.
    """
    heard = _Heard()
    try:
        async with asyncio.timeout(deadline_s):
            if kind == "embeddings":
                return await _embed(f"{url}/v1/embeddings", embedding_body(model), access)
            return await _stream(f"{url}/v1/chat/completions", probe_body(model, dialect), access, heard)
    except TimeoutError:
        if heard.token:
            return ProbeResult(
                verdict=ProbeOutcome.STREAMED, detail="the deadline came before the stream's end"
            )
        what = "token" if kind == "chat" else "vector"
        return ProbeResult(verdict=ProbeOutcome.STALLED, detail=f"no {what} within {deadline_s:g} s")
    except httpcore2.ConnectError as error:
        if is_hosts_fault(error):
            why = "no descriptor or no memory for a connection"
            return ProbeResult(verdict=ProbeOutcome.HOST_EXHAUSTED, detail=why)
        return ProbeResult(verdict=ProbeOutcome.NOT_LISTENING, detail=f"cannot connect to {url}: {error}")
    except HTTP_ERRORS as error:  # its message may quote the reply
        return _error(type(error).__name__)
    except Exception as error:  # any other effect of a reply is a failed probe, not a failed task
        return _error(f"the reply could not be read: {type(error).__name__}")


async def served_model(url: str, *, deadline_s: float, access: EngineAccess = OPEN) -> str | None:
    """The first name in the engine's `/v1/models`, or None if it gives none within the deadline."""
    try:
        async with (
            asyncio.timeout(deadline_s),
            ask_engine("GET", f"{url}/v1/models", access=access) as response,
        ):
            name = (await read_json(response))["data"][0]["id"]
    except (TimeoutError, *HTTP_ERRORS, ValueError, LookupError, TypeError):
        return None
    return plain_word(name, NAME_CHARACTERS)


async def work_done(url: str, dialect: Dialect, access: EngineAccess = OPEN) -> int | None:
    """What the engine has computed since its start, by its own counters; None if it does not say within two seconds."""
    spec = DIALECTS[dialect]
    if spec.metrics is None:
        return None
    try:
        async with asyncio.timeout(WORK_SECONDS):
            return await metric(url + spec.metrics, *spec.work, access=access)
    except (TimeoutError, *HTTP_ERRORS, ValueError):
        return None


async def metric(url: str, *names: str, access: EngineAccess) -> int | None:
    """The sum of an engine's metrics of these names; None if it has none of them. Raises HTTP_ERRORS, ValueError."""
    async with ask_engine("GET", url, access=access) as reply:
        if reply.status != 200:
            return None
        lines = (await read_body(reply)).decode("utf-8", "replace").splitlines()
    found = [float(line.split()[-1]) for line in lines if re.split(r"[{ ]", line)[0] in names]
    return int(sum(found)) if found else None


async def _stream(url: str, body: dict[str, Any], access: EngineAccess, heard: _Heard) -> ProbeResult:
    async with ask_engine("POST", url, body, access) as response:
        if (refusal := await _rejection(response)) is not None:
            return refusal
        if (error := await _read_stream(response, heard)) is not None:
            return error
    return (
        ProbeResult(verdict=ProbeOutcome.STREAMED)
        if heard.token
        else _error("the stream ended without a token")
    )


async def _embed(url: str, body: dict[str, Any], access: EngineAccess) -> ProbeResult:
    async with ask_engine("POST", url, body, access) as response:
        if (refusal := await _rejection(response)) is not None:
            return refusal
        raw = await read_body(response)
    try:
        vector = msgspec.json.decode(raw, type=_Embeddings).data[0].embedding
        if all(map(math.isfinite, vector)):
            return ProbeResult(verdict=ProbeOutcome.EMBEDDED)
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        pass
    return _error("the reply holds no vector of finite numbers")


async def _rejection(response: httpcore2.Response) -> ProbeResult | None:
    """The result if the response's status is not 200; else None."""
    status = response.status
    if status in (429, 502, 503, 504):  # 502 and 504: a proxy before an engine that loads
        return ProbeResult(verdict=ProbeOutcome.LOADING, detail=f"HTTP {status}")
    if status in (401, 403):  # its words may quote the key
        return _error(f"HTTP {status}: it wants another key (key_file)")
    if status != 200:
        first = await anext(aiter(response.aiter_stream()), b"")
        return _error(f"HTTP {status}", first.decode("utf-8", "replace"))
    return None


async def _read_stream(response: httpcore2.Response, heard: _Heard) -> ProbeResult | None:
    """Read the stream to its end; the result if it holds an error."""
    decoder = SSEDecoder(LINE_BYTES)
    size = 0
    try:
        async for data in response.aiter_stream():
            size += len(data)
            if size > STREAM_BYTES:
                return _error(f"the stream is longer than {STREAM_BYTES} bytes")
            if broken := _listen(decoder.feed(data), heard):
                return _error("error in the stream", broken.message)
        _listen(decoder.close(), heard)
    except EventTooLong as error:
        return _error(f"the stream holds {error}")
    except MalformedChunk:  # its message may quote the reply
        return _error("the stream holds an event that is not a chat completion chunk")
    return None


def _listen(payloads: Sequence[bytes], heard: _Heard) -> Broken | None:
    """Note generated text: a role, an empty delta, progress or usage is none. Returns the error, if any."""
    for event in (event for payload in payloads for event in parse_payload(payload)):
        if isinstance(event, Broken):
            return event
        heard.token = heard.token or isinstance(event, Text | Thought | CallStart | CallArguments)
    return None


async def wait_until_streams(
    url: str,
    *,
    model: str,
    deadline_s: float,
    dialect: Dialect = "llama-server",
    kind: Kind = "chat",
    access: EngineAccess = OPEN,
    errors_allowed: int = 3,
) -> ProbeResult:
    """Probe until the engine is ready, the deadline has passed, or `errors_allowed` errors came in a row; the last result."""
    end = time.monotonic() + deadline_s
    pause, errors = 0.02, 0
    while True:
        left = max(end - time.monotonic(), 0.05)
        result = await probe(url, model=model, deadline_s=left, dialect=dialect, kind=kind, access=access)
        errors = errors + 1 if result.verdict is ProbeOutcome.ERROR else 0
        if result.ok or errors >= errors_allowed or time.monotonic() + pause >= end:
            return result
        await asyncio.sleep(pause)
        pause = min(pause * 2, 0.5)
