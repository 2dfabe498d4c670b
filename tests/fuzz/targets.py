"""What is fuzzed: each target takes any bytes, and raises when something is wrong with the answer.

A target allows only the errors that its subject documents, and asserts what must hold for every input:
the same outcome on any cut, output in proportion to input, work in proportion to input. Targets know no
fuzzer: `tests.fuzz.test_corpus` runs the corpus through them, `tests.fuzz.worker` adds the coverage.
"""

import asyncio
import json
import os
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from msgspec.structs import replace

from app.api.embeddings import Embeddings
from app.api.engine_request import AskedEngine
from app.api.surface import Surface
from app.errors.tree import MannersError, RequestError, UpstreamError
from app.stream.call_reader import cut_call, declared_calls, read_calls
from app.stream.json_value import NotJSON, ValueScanner, kind_of
from app.stream.pipeline import Pipeline, StreamPolicy
from app.stream.schema import Tools
from app.telemetry.redact import Redactor
from app.upstream.connection import EngineReply
from deploy.core.errors import WeightsError
from deploy.core.gguf import read_metadata
from gates.contracts import sample
from gates.contracts.dialect import Dialect
from gates.contracts.errors import ReportError, SamplesError
from gates.contracts.markers import spellings
from gates.decode.decoder import DecodeError
from gates.reply.chunks import MalformedChunk, parse_payload, plain_text
from gates.reply.events import Broken, CallArguments, CallStart, Done, Event, Finish, Text, Thought
from gates.reply.sse import EventTooLong, SSEDecoder
from gates.report import dsse
from gates.report.statement import parse as parse_statement
from tests.app.stream.wire import TOOLS
from tests.fuzz.draw import from_bytes
from tests.fuzz.replies import draw_reply, faults
from tests.fuzz.reply_reader import CHATS, COMPLETIONS, HEAD, policy_of
from tests.fuzz.steps import Steps

UNBOUNDED = 1 << 62
DIALECTS: tuple[Dialect, ...] = get_args(Dialect)
GUARDS = (0, 5, 160, UNBOUNDED)


@dataclass(frozen=True)
class Target:
    """One subject. `longest` bounds the input in bytes; `words` are what a mutation may insert."""

    run: Callable[[bytes], None]
    longest: int = 4096
    words: tuple[bytes, ...] = ()


def _json(text: str | bytes) -> Any:
    """The value; Python converts no number of more than 4,300 digits, and need not."""
    return json.loads(text, parse_int=str)


def head(data: bytes, size: int) -> tuple[bytes, bytes]:
    """The first bytes, which are switches (zeros if there are not enough), and the rest."""
    return data[:size].ljust(size, b"\0"), data[size:]


def cuts(data: bytes) -> Iterator[list[bytes]]:
    """The ways in which an input is fed: in one piece, in halves, in small pieces, byte by byte if it is short."""
    yield [data]
    middle = len(data) // 2
    yield [part for part in (data[:middle], data[middle:]) if part]
    for size in (3, 1) if len(data) <= 200 else (17,):
        yield [data[at : at + size] for at in range(0, len(data), size)]


def same(outcomes: Iterable[Any]) -> None:
    """Every cut has the same outcome."""
    first: Any = None
    for number, outcome in enumerate(outcomes):
        first = outcome if number == 0 else first
        assert outcome == first, f"cut {number} differs: {outcome!r:.500} and not {first!r:.500}"


def one_line(error: Exception, most: int) -> None:
    """An error's message is one line, and no longer than this."""
    message = str(error).strip()
    assert "\n" not in message, f"more than one line: {message!r}"
    assert len(message) <= most, f"a message of {len(message)} characters"


def in_temporary_file(data: bytes, read: Callable[[Path], None], suffix: str) -> None:
    """Readers of files get one, in memory where the machine has such a place."""
    place = "/dev/shm" if os.path.isdir("/dev/shm") else None
    with tempfile.TemporaryDirectory(dir=place) as folder:
        path = Path(folder) / f"input{suffix}"
        path.write_bytes(data)
        read(path)


# ------------------------------------------------------------------------------------------ engines


class _Transport(asyncio.Transport):
    """Of a connection that exists in name only."""

    def __init__(self) -> None:
        super().__init__()
        self.closed = False

    def write(self, data: Any) -> None:
        """Goes nowhere."""

    def close(self) -> None:
        self.closed = True

    abort = close

    def is_closing(self) -> bool:
        return self.closed

    def pause_reading(self) -> None:
        """Nothing to pause."""

    resume_reading = pause_reading


class _Body:
    """A sink that keeps everything."""

    def __init__(self) -> None:
        self.data_ = bytearray()
        self.ends: list[str | None] = []

    def data(self, data: bytes) -> None:
        assert not self.ends, "data behind the end"
        self.data_ += data

    def end(self, error: MannersError | None) -> None:
        assert error is None or isinstance(error, UpstreamError), f"not the engine's fault: {error!r}"
        self.ends.append(None if error is None else error.code)
        assert len(self.ends) == 1, "a second end"


async def _read_reply(reads: Sequence[bytes]) -> tuple[Any, ...]:
    """What became of a reply: its status, its headers, its body, and how it ended."""
    transport, body = _Transport(), _Body()
    reply = EngineReply()
    reply.connection_made(transport)
    answered = reply.send(b"GET / HTTP/1.1\r\nhost: engine\r\n\r\n")
    poured = False
    for read in reads:
        if transport.closed or (poured and reply.complete):
            break
        reply.data_received(read)
        if answered.done() and not answered.exception() and not poured:
            poured = True
            reply.set_body_consumer(body)
    reply.connection_lost(None)
    if not answered.done():
        return ("no head",)
    error = answered.exception()
    if error is not None:
        assert isinstance(error, UpstreamError), f"not the engine's fault: {error!r}"
        return ("no head", error.code)
    if not poured:
        reply.set_body_consumer(body)
    assert len(body.ends) == 1, f"{len(body.ends)} ends"
    return reply.status, reply.headers, bytes(body.data_), body.ends[0]


_loop: asyncio.AbstractEventLoop | None = None


def http(data: bytes) -> None:
    """An engine's reply, from the socket to the sink."""
    global _loop
    _loop = _loop or asyncio.new_event_loop()
    for reads in cuts(data):
        with Steps(5000 + 60 * len(data)):
            _loop.run_until_complete(_read_reply(reads))


def sse(data: bytes) -> None:
    """Server-sent events to payloads."""
    switch, wire = head(data, 1)
    limit = (16, 64, 1 << 20)[switch[0] % 3]
    whole = SSEDecoder(limit).whole_payloads(wire)
    if whole is not None:
        assert whole == _payloads([wire], limit)[0], "the short way differs"
    same(_payloads(reads, limit) for reads in cuts(wire))


def _payloads(reads: Sequence[bytes], limit: int) -> tuple[list[bytes], str]:
    decoder, payloads = SSEDecoder(limit), list[bytes]()
    try:
        for read in reads:
            payloads += decoder.feed(read)
        payloads += decoder.close()
    except EventTooLong as error:
        return payloads + error.payloads, "too long"
    size = sum(map(len, reads))
    assert sum(map(len, payloads)) <= size + 10 * len(payloads), "payloads are larger than the stream"
    return payloads, ""


def chunks(data: bytes) -> None:
    """One payload to events."""
    try:
        with Steps(2000 + 20 * len(data)):
            events = parse_payload(data)
    except MalformedChunk:
        assert plain_text(data) is None
        return
    text = plain_text(data)
    assert text is None or events == [Text(0, text)], "the short way differs"
    said = [e for e in events if isinstance(e, Text | Thought)]
    assert sum(len(e.text) for e in said) <= len(data), "more text than there was"
    assert len(events) <= len(data)


def _digest(events: Sequence[Event]) -> list[Any]:
    """What a caller could tell apart, choice by choice; pieces joined."""
    out: list[Any] = []
    for event in events:
        if isinstance(event, Text | Thought):
            _join(out, [type(event).__name__, event.choice], event.text)
        elif isinstance(event, CallArguments):
            _join(out, ["arguments", event.choice, event.index], event.fragment)
        elif isinstance(event, CallStart):
            out.append(["call", event.choice, event.index, event.name, event.id])
        elif isinstance(event, Finish):
            out.append(["finish", event.choice, event.reason])
        elif isinstance(event, Broken):
            out.append(["broken", event.code])
    return out


def _join(out: list[Any], key: list[Any], text: str) -> None:
    if text and out and out[-1][:-1] == key:
        out[-1][-1] += text
    elif text:
        out.append([*key, text])


def _policy(switch: int, guard: int) -> StreamPolicy:
    surface, dialect = CHATS["chat"], DIALECTS[switch % len(DIALECTS)]
    tools, thinking, stream = bool(switch & 4), bool(switch & 8), bool(switch & 16)
    return policy_of(
        surface, dialect, stream=stream, tools=tools, thinking=thinking, guard=GUARDS[guard % len(GUARDS)]
    )


def pipeline(data: bytes) -> None:
    """A stream's bytes to what four surfaces say of it."""
    switch, wire = head(data, 2)
    policy = _policy(switch[0], switch[1])
    outcomes = []
    for reads in cuts(wire):
        with Steps(20_000 + 400 * len(wire)):
            outcomes.append(_run(reads, policy))
    same(map(_digest, outcomes))
    for surface in (*CHATS.values(), COMPLETIONS):
        said = surface.encoder(HEAD).feed(outcomes[0])
        for payload in SSEDecoder().feed(said):
            assert payload == b"[DONE]" or isinstance(_json(payload), dict)
        if isinstance(outcomes[0][-1], Done):
            collector = surface.collector(HEAD)
            collector.feed(outcomes[0])
            _json(collector.message())


def _run(reads: Sequence[bytes], policy: StreamPolicy) -> list[Event]:
    subject = Pipeline(policy)
    events = [event for read in reads for event in subject.feed(read)]
    events += subject.close()
    assert isinstance(events[-1], Done | Broken), "the end is not told"
    assert subject.over and not subject.feed(b"data: [DONE]\n\n") and not subject.close()
    said = sum(len(e.text) for e in events if isinstance(e, Text | Thought))
    assert said <= sum(map(len, reads)) + 100, "more is said than was sent"
    return events


def reply(data: bytes) -> None:
    """A reply made of thoughts, calls and prose."""
    draw = from_bytes(data)
    for fault in faults(draw_reply(draw), draw):
        raise AssertionError(fault)


# ------------------------------------------------------------------------------------------ calls


def _text(data: bytes) -> str:
    return data.decode("utf-8", "replace")


def calls(data: bytes) -> None:
    """The body of a call, in any grammar: what is read is sound, in linear work."""
    text, tools = _text(data), Tools(TOOLS)
    with Steps(20_000 + 600 * len(text)):
        found = [
            *read_calls(text, "", tools),
            *read_calls(text, "run", tools),
            *(declared_calls(text, tools, ("arguments",)) or ()),
        ]
        cut = cut_call(text, "", tools)
    assert all(call.name and kind_of(call.arguments) == "object" for call in found)
    assert cut is None or cut.name in tools


def value(data: bytes) -> None:
    """Where JSON ends is the same on every cut, and what is whole is JSON if its kind says so."""
    text = _text(data)
    same(_scanned(text, size) for size in (len(text) + 1, 1, 3))


def _scanned(text: str, size: int) -> int:
    """Where the value ends; -1: it does not; below that, where a fault shows."""
    scanner = ValueScanner()
    with Steps(1000 + 40 * len(text)):
        for at in range(0, len(text), size):
            try:
                end = scanner.feed(text[at : at + size])
            except NotJSON as error:
                return -2 - at - error.at
            if scanner.done:
                return at + end
    return -1


# ------------------------------------------------------------------------------------------ requests

_BEFORE = b'{"model":"m","messages":[{"role":"user","content":"a"}],"tools":[{"type":"function","function":{"name":"f","parameters":'


def schema(data: bytes) -> None:
    """A tool's schema, and the text of an argument: what `parse` takes, the core can work with."""
    shape, _, text = data.partition(b"\0")
    try:
        with Steps(20_000 + 200 * len(data)):
            request = CHATS["chat"].parse(_BEFORE + shape + b"}}]}", 10)
    except RequestError:
        return
    tools = CHATS["chat"].policy(request, AskedEngine("vllm"), "t").tools
    assert tools is not None
    declared = (request.body["tools"][0]["function"].get("parameters") or {}).get("properties")
    names = list(declared)[:8] if isinstance(declared, dict) else []
    for name in (*names, "undeclared"):
        with Steps(2000 + 100 * len(data)):
            assert tools.types("f", name)
            encoded = tools.encode("f", name, _text(text))
        _json(encoded)


_SURFACES: tuple[Surface, ...] = (*CHATS.values(), COMPLETIONS, Embeddings())


def request(data: bytes) -> None:
    """A caller's request, on each surface."""
    switch, raw = head(data, 1)
    surface = _SURFACES[switch[0] % len(_SURFACES)]
    try:
        with Steps(20_000 + 100 * len(raw)):
            checked = surface.parse(raw, 512)
    except RequestError as error:
        json.dumps(error.envelope()).encode()
        one_line(error, 500 + 2 * len(raw))
        return
    for dialect in DIALECTS:
        for thinking in (0, None, 7):
            engine = AskedEngine(dialect, "served", thinking=thinking)
            body = _json(surface.engine_body(checked, engine))
            assert body["model"] == "served"
            assert len(json.dumps(body)) <= 2000 + 8 * len(raw)
            if not isinstance(surface, Embeddings):
                surface.policy(checked, engine, "t")
        surface.ignored(checked, dialect)
    if not isinstance(surface, Embeddings):
        head_of = replace(HEAD, echo=checked.echo)
        encoder, collector = surface.encoder(head_of), surface.collector(head_of)
        events: list[Event] = [Text(0, "Hi."), Finish(0, "stop"), Done()]
        collector.feed(events)
        _json(collector.message())
        assert encoder.feed(events)


# ------------------------------------------------------------------------------------------ files


def gguf(data: bytes) -> None:
    """The header of a GGUF file."""

    def read(path: Path) -> None:
        try:
            with Steps(2000 + 20 * len(data)):
                found = read_metadata(path)
        except WeightsError:
            return
        size = sum(len(str(k)) for k in found) + sum(len(v) for v in found.values() if isinstance(v, str))
        assert size <= len(data)

    in_temporary_file(data, read, ".gguf")


_KEY = Ed25519PrivateKey.from_private_bytes(bytes(32))
_TRUSTED = {dsse.key_id(_KEY.public_key()): _KEY.public_key()}
SIGNED_PAYLOAD = b'{"_type":"https://in-toto.io/Statement/v1","predicateType":"urn:manners:gate-report:v1"}'


def report(data: bytes) -> None:
    """A signed report: the envelope, its signatures, the statement in it."""
    try:
        envelope = dsse.parse(data)
    except DecodeError as error:
        one_line(error, 1000 + 2 * len(data))
        return
    assert dsse.render(envelope) == data, "two texts for one envelope"
    with suppress(ReportError):
        dsse.signer(envelope, _TRUSTED)
        assert (envelope.payload, envelope.payloadType) == (SIGNED_PAYLOAD, dsse.PAYLOAD_TYPE), "forged"
    statement(envelope.payload)


def statement(data: bytes) -> None:
    """A report's payload."""
    try:
        with Steps(20_000 + 200 * len(data)):
            parse_statement(data)
    except DecodeError as error:
        one_line(error, 1000 + 2 * len(data))


def samples(data: bytes) -> None:
    """A line of samples.jsonl."""
    try:
        with Steps(5000 + 50 * len(data)):
            found = sample.parse(_text(data), "line 1")
    except SamplesError:
        return
    again = sample.parse(sample.render(found), "line 1")
    assert again.key == found.key


_CANARIES = ("canary.bird@example.org", "4111 1111 1111 1111", "sk-abcdefghijklmnop1234")


def redact(data: bytes) -> None:
    """A conversation's text with things in it that must not be kept."""
    switch, rest = head(data, 1)
    text = _text(rest)
    secret = _CANARIES[switch[0] % len(_CANARIES)]
    middle = len(text) // 2
    for said in (text, f"{text}\n{secret}\n", f"{text[:middle]}\n{secret}\n{text[middle:]}"):
        with Steps(20_000 + 200 * len(said)):
            kept = Redactor().text(said)
        assert said is text or secret not in kept, f"{secret} was kept"
        assert len(kept) <= 1000 + 12 * len(said)
    with Steps(20_000 + 200 * len(text)):
        json.dumps(Redactor().arguments(text))


# ------------------------------------------------------------------------------------------ the list

_TAGS = (*(text.encode() for text in spellings()), b"[ARGS]", b"&lt;", b"&gt;", b"```", b"now", b"web_search")
_JSON = (b'{"', b'":', b"null", b"true", b"1e5", b"\\u0041", b"\\ud800", b"[", b"]", b"}", b'"')
_CHUNK = (
    b"data: ", b"\n\n", b"\r\n", b"[DONE]", b'"choices":[', b'"delta":{', b'"content":"', b'"reasoning":"', b'"error":',
    b'"reasoning_content":"', b'"finish_reason":"stop"', b'"tool_calls":[', b'"function":{"name":"now"', b'"arguments":"',
    b'"index":0', b'"usage":{', b'"message":{',
)  # fmt: skip
_REQUEST = (
    b'"model":"m"', b'"messages":[', b'"role":"user"', b'"content":"', b'"tools":[', b'"input":', b'"stream":true',
    b'"max_tokens":1', b'"thinking":{', b'"tool_choice":', b'"prompt":', b'"system":', b'"tool_calls":[',
)  # fmt: skip
_SCHEMA = (
    b'"anyOf":[',
    b'"$ref":"#/',
    b'"properties":{',
    b'"type":',
    b'"enum":[',
    b'"const":',
    b'"allOf":[',
    b'"string"',
)
_HTTP = (
    b"HTTP/1.1 200 OK\r\n", b"HTTP/1.1 101 \r\n", b"content-length: ", b"transfer-encoding: chunked\r\n", b"\r\n\r\n",
    b"0\r\n\r\n", b"connection: close\r\n", b"connection: upgrade\r\n", b"upgrade: h2c\r\n",
)  # fmt: skip

TARGETS: dict[str, Target] = {
    "http": Target(http, words=_HTTP),
    "sse": Target(sse, words=_CHUNK[:4] + (b"event:", b"error:", b": ", b"\xef\xbb\xbf")),
    "chunks": Target(chunks, words=_CHUNK + _JSON),
    "pipeline": Target(pipeline, words=_CHUNK + _TAGS),
    "reply": Target(reply, 96),
    "calls": Target(calls, words=_TAGS + _JSON + (b'"name":', b'"arguments":', b'"parameters":')),
    "value": Target(value, words=_JSON),
    "schema": Target(schema, words=_SCHEMA + _JSON),
    "request": Target(request, words=_REQUEST + _JSON),
    "gguf": Target(gguf, words=(b"GGUF\3\0\0\0", b"\x08\0\0\0", b"\x09\0\0\0", b"\xff\xff\xff\xff\xff\xff\xff\xff")),
    "report": Target(report, words=(b'{"payload":"', b'"payloadType":"', b'"signatures":[', b'"keyid":"', b'"sig":"')),
    "statement": Target(statement, 16_384, words=_JSON),
    "samples": Target(samples, words=_JSON),
    "redact": Target(redact, words=(b"http://", b"@", b"?key=", b"password=", b"Bearer ", b"-----BEGIN ", b" at ", b" dot ")),
}  # fmt: skip
"""Every target by its name; `tests.fuzz.weights` adds the one that needs the quantizer."""
