"""Only a generated token makes an engine ready."""

import asyncio
import json
from collections import Counter

import h11
import pytest

from deploy.core.engine_http import LIMITS, MAX_BYTES
from deploy.core.errors import StartCancelled, StartTimeout
from deploy.drivers.url import UrlEngine
from deploy.engine.engine import EngineState, Phase
from deploy.engine.probe import ProbeOutcome, probe, served_model
from deploy.engine.spec import EngineSpec
from gates.run.http import READ_BYTES
from tests.deploy.scripted import (
    DONE,
    OK,
    ROLE,
    TOKEN,
    USAGE,
    Step,
    answer,
    delta,
    scripted,
    unused_url,
)
from tests.scale import PATIENCE

pytestmark = pytest.mark.asyncio


def within(verdict: ProbeOutcome) -> float:
    """A deadline in seconds that passes in the test only where it is what is tested."""
    return 0.3 if verdict is ProbeOutcome.STALLED else PATIENCE


@pytest.mark.parametrize(
    "token",
    [
        TOKEN,
        delta(b'{"reasoning":"Hm"}'),
        delta(b'{"reasoning_content":"Hm"}'),
        delta(b'{"tool_calls":[{"index":0,"function":{"name":"f"}}]}'),
        delta(b'{"tool_calls":[{"index":0,"function":{"arguments":"{"}}]}'),
        delta(b'{"content":"\xe2\x80\xa8"}'),
        TOKEN.replace(b"\n", b"\r"),
        TOKEN.replace(b"\n", b"\r\n"),
        TOKEN.replace(b"data: ", b"data:"),
    ],
)
async def test_any_generated_text_is_success(token: bytes) -> None:
    async with scripted([OK, b": ping\n\n", ROLE, token, USAGE, DONE]) as server:
        result = await probe(server.url, model="m", deadline_s=PATIENCE)
    assert (result.verdict, result.detail) == (ProbeOutcome.STREAMED, "")


@pytest.mark.parametrize(
    "empty",
    [
        ROLE,
        USAGE,
        delta(b'{"content":""}'),
        delta(b"{}"),
        delta(b'{"tool_calls":[]}'),
        delta(b'{"tool_calls":[{"index":0,"function":{"arguments":""}}]}'),
        b'data: {"choices":[{"delta":{"role":"assistant"}}],"prompt_progress":{"total":9}}\n\n',
        b": ping\n\n",
    ],
)
async def test_what_holds_no_text_is_no_success(empty: bytes) -> None:
    async with scripted([OK, empty, DONE]) as server:
        result = await probe(server.url, model="m", deadline_s=PATIENCE)
    assert result.verdict is ProbeOutcome.ERROR
    assert result.detail == "the stream ended without a token"


BOOM = b'data: {"error":{"message":"boom"}}\n\n'


@pytest.mark.parametrize(
    ("script", "verdict", "detail"),
    [
        ([answer(b"503 Service Unavailable")], ProbeOutcome.LOADING, "HTTP 503"),
        ([answer(b"502 Bad Gateway")], ProbeOutcome.LOADING, "HTTP 502"),
        ([answer(b"404 Not Found", b"no such model")], ProbeOutcome.ERROR, "HTTP 404"),
        ([answer(b"401 Unauthorized")], ProbeOutcome.ERROR, "it wants another key (key_file)"),
        ([answer(b"429 Too Many Requests")], ProbeOutcome.LOADING, "HTTP 429"),
        ([answer(b"302 Found\r\nlocation: http://x")], ProbeOutcome.ERROR, "HTTP 302"),
        ([OK, ROLE, BOOM], ProbeOutcome.ERROR, "error in the stream"),
        ([OK, TOKEN, BOOM], ProbeOutcome.ERROR, "error in the stream"),
        ([OK, b"data: {nope\n\n"], ProbeOutcome.ERROR, "not a chat completion chunk"),
        ([OK, b'data: {"choices":[3]}\n\n'], ProbeOutcome.ERROR, "not a chat completion chunk"),
        ([b"SSH-2.0-OpenSSH\r\n\r\n"], ProbeOutcome.ERROR, "RemoteProtocolError"),
        ([], ProbeOutcome.ERROR, "RemoteProtocolError"),
        ([OK, ROLE, 9.0], ProbeOutcome.STALLED, "no token within 0.3 s"),
        ([9.0], ProbeOutcome.STALLED, "no token within 0.3 s"),
    ],
)
async def test_each_failure_has_its_verdict(script: list[Step], verdict: ProbeOutcome, detail: str) -> None:
    async with scripted(script) as server:
        result = await probe(server.url, model="m", deadline_s=within(verdict))
        if verdict is not ProbeOutcome.ERROR or "HTTP" in detail:
            embedding = await probe(server.url, model="m", deadline_s=within(verdict), kind="embeddings")
            assert embedding.verdict is verdict
    assert result.verdict is verdict
    assert detail in result.detail


DEEP = b"[" * 100_000
NESTED = b'{"a":' * 900 + b"1" + b"}" * 900
FRAME = b'data: {"choices":[{"delta":{"content":%b}}]}\n\n'
HOSTILE: dict[str, list[Step]] = {
    "open brackets": [OK, b"data: " + DEEP + b"\n\n"],
    "a deep frame": [OK, b"data: " + NESTED + b"\n\n"],
    "a deep error": [OK, b'data: {"error":' + NESTED + b"}\n\n"],
    "a deep delta": [OK, FRAME % NESTED],
    "an integer of 5,000 digits": [OK, FRAME % (b"9" * 5000)],
    "bytes that are no text": [OK, b'data: {"\xff":1}\n\n'],
    "half a surrogate pair": [OK, b'data: {"error":"\\ud800"}\n\n'],
    "endless frames without a token": [OK, *[ROLE * 1000] * 40],
    "an endless line": [OK, b"data: ", *[b"x" * 100_000] * 40],
    "a length that is none": [b"HTTP/1.1 200 OK\r\ncontent-length: -5\r\n\r\n"],
    "101": [b"HTTP/1.1 101 Switching Protocols\r\nupgrade: x\r\nconnection: upgrade\r\n\r\n"],
}


@pytest.mark.parametrize("script", HOSTILE.values(), ids=HOSTILE.keys())
async def test_no_reply_makes_a_probe_raise_or_go_on_for_ever(script: list[Step]) -> None:
    async with scripted(script) as server:
        result = await probe(server.url, model="m", deadline_s=PATIENCE)
    assert (result.verdict, result.ok) == (ProbeOutcome.ERROR, False)


NAMES = (b"m" * 600, rb"\ud800", rb"a\r\nb", rb"\u0000", b"")


@pytest.mark.parametrize(
    "body", [DEEP, NESTED, b" " * (2 << 20), *(b'{"data":[{"id":"%b"}]}' % name for name in NAMES)]
)
async def test_no_list_of_models_makes_a_start_raise(body: bytes) -> None:
    async with scripted([answer(b"200 OK", body)]) as server:
        assert await served_model(server.url, deadline_s=PATIENCE) is None


CHUNKED = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
FLOODS = {
    "interim replies": (b"", b"HTTP/1.1 100 \r\n\r\n"),
    "headers": (b"HTTP/1.1 200 OK\r\n", b"a:b\r\n"),
    "chunks of a byte": (CHUNKED, b"1\r\n:\r\n"),
    "trailers": (CHUNKED + b"0\r\n", b"a:b\r\n"),
    "empty lines": (OK, b"\n"),
    "events": (OK, b"data:{}\n\n"),
    "one line": (OK, b"x"),
}


@pytest.mark.parametrize("head, piece", FLOODS.values(), ids=FLOODS.keys())
@pytest.mark.parametrize("asked", ["probe", "models"])
async def test_a_flood_ends_the_probe_by_its_size_and_lets_others_have_their_turns(
    head: bytes, piece: bytes, asked: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    turn, parsed = 0, Counter[int]()
    receive = h11.Connection.receive_data

    def counted(self: h11.Connection, data: bytes) -> None:
        parsed[turn] += len(data)
        receive(self, data)

    async def others() -> None:
        nonlocal turn
        while True:
            await asyncio.sleep(0)
            turn += 1

    monkeypatch.setattr(h11.Connection, "receive_data", counted)
    taking_turns = asyncio.create_task(others())
    async with scripted([head, *([piece * (65536 // len(piece))] * 1000), 10 * PATIENCE]) as server:
        if asked == "probe":
            result = await probe(server.url, model="m", deadline_s=PATIENCE)
            assert result.verdict is ProbeOutcome.ERROR
        else:
            assert await served_model(server.url, deadline_s=PATIENCE) is None
        asks = len(server.requests)
    taking_turns.cancel()
    assert max(parsed.values()) <= READ_BYTES * asks
    lines = (LIMITS.lines + 1) * len(piece) // piece.count(b"\n") if b"\n" in piece else MAX_BYTES
    assert sum(parsed.values()) <= asks * (min(lines, MAX_BYTES) + len(head) + READ_BYTES)


VECTOR = b'{"data":[{"embedding":[0.5,-1,2e-3]}]}'


async def test_an_engine_for_embeddings_is_asked_for_one() -> None:
    async with scripted([answer(b"200 OK", VECTOR)]) as server:
        result = await probe(server.url, model="m", deadline_s=PATIENCE, kind="embeddings")
    assert (result.verdict, result.ok, result.detail) == (ProbeOutcome.EMBEDDED, True, "")
    head, _, body = server.requests[0].partition(b"\r\n\r\n")
    assert head.startswith(b"POST /v1/embeddings ")
    assert json.loads(body) == {"model": "m", "input": "hello"}


NOT_VECTORS = [
    b"{}", b"[]", b"3", b'{"data":[]}', b'{"data":[{}]}', b'{"data":[{"embedding":[]}]}',
    b'{"data":[{"embedding":"AACAPw=="}]}', b'{"data":[{"embedding":[0.5,null]}]}',
    b'{"data":[{"embedding":[0.5,NaN]}]}', b'{"data":[{"embedding":[1e999]}]}',
    b'{"data":[{"embedding":[true]}]}', b'{"data":[{"embedding":[[0.5]]}]}', b'{"data":{"embedding":[0.5]}}',
    DEEP, b'{"data":[{"embedding":' + NESTED + b"}]}", b'{"data":[{"embedding":[%b]}]}' % (b"9" * 400),
    b'{"data":[{"embedding":[%b]}]}' % (b"9" * 5000), b'{"data":[{"embedding":[' + b"1," * (1 << 20),
]  # fmt: skip


@pytest.mark.parametrize("body", NOT_VECTORS)
async def test_what_is_no_vector_of_finite_numbers_is_no_success(body: bytes) -> None:
    async with scripted([answer(b"200 OK", body)]) as server:
        result = await probe(server.url, model="m", deadline_s=PATIENCE, kind="embeddings")
    assert result.verdict is ProbeOutcome.ERROR
    assert result.detail.startswith("the reply")


async def test_a_token_before_the_deadline_is_enough() -> None:
    async with scripted([OK, TOKEN, 9.0]) as server:
        result = await probe(server.url, model="m", deadline_s=1.0)
    assert result.ok


def remote(url: str) -> EngineSpec:
    """An engine that somebody else runs."""
    return EngineSpec(name="far", dialect="vllm", driver="url", url=url)


MODELS = [answer(b"200 OK", b'{"data":[{"id":"annie-9b"}]}')]


async def test_a_url_engine_is_ready_once_it_streams() -> None:
    states: list[EngineState] = []
    async with scripted(MODELS, [OK, TOKEN, DONE]) as server:
        engine = UrlEngine(remote(server.url + "/v1/"), on_change=states.append)
        state = await engine.start()
        assert await engine.start() is state
        await engine.stop()
    assert (state.url, state.model) == (server.url, "annie-9b")
    assert [s.state for s in states] == [Phase.STARTING, Phase.READY, Phase.STOPPING, Phase.STOPPED]
    assert engine.url is None


async def test_a_url_engine_that_does_not_stream_has_failed() -> None:
    engine = UrlEngine(remote(unused_url()), model="m", start_timeout_s=0.3)
    with pytest.raises(StartTimeout, match="not_listening"):
        await engine.start()
    failed = engine.state
    assert failed.state is Phase.FAILED
    assert "not_listening" in (failed.last_error or "")
    await engine.stop()
    assert engine.state.state is Phase.STOPPED


async def test_stopping_a_url_engine_ends_its_start() -> None:
    engine = UrlEngine(remote(unused_url()), model="m")
    start = asyncio.create_task(engine.start())
    await asyncio.sleep(0.1)
    await engine.stop()
    with pytest.raises(StartCancelled):
        await start
    assert engine.state.state is Phase.STOPPED
