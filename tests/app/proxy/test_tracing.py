"""Spans: one a request, in OpenTelemetry's words, with the caller's trace above it and the engine's below."""

import asyncio
import json
import socket
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from app.config.config import ConfigError, parse
from app.proxy import otel
from app.proxy.otel import Spans
from app.wiring import tracing_for
from tests.app.house import ANYWHERE, GatewayFixture, config, forget, run
from tests.app.telemetry.test_log import CANARY, PLACES
from tests.script import (
    DONE,
    CloseNow,
    Head,
    Say,
    finish,
    reply,
    role,
    status,
    text,
    thought,
    usage,
    vectors,
)
from tests.scripted_engine import ScriptedEngine

pytestmark = pytest.mark.asyncio(loop_scope="module")

CALLER = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
THINK: dict[str, Any] = {"chat_template_kwargs": {"enable_thinking": True}}


class Watched:
    """A gateway whose spans are kept in memory."""

    def __init__(self, home: GatewayFixture, memory: InMemorySpanExporter) -> None:
        self.home, self._memory = home, memory

    async def span(self) -> ReadableSpan:
        """The one span of the one request since the last look, when it is booked."""
        await self.home.booked()
        (span,) = self._memory.get_finished_spans()
        self._memory.clear()
        return span


@asynccontextmanager
async def watched(made: Any, engine: ScriptedEngine) -> AsyncIterator[Watched]:
    """The gateway of a configuration, watched."""
    memory = InMemorySpanExporter()
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(memory))
    async with run(made, engine, tracing=Spans(provider, ANYWHERE)) as home:
        yield Watched(home, memory)


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def here(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Watched]:
    """One for the tests that need no settings of their own."""
    async with (
        ScriptedEngine() as engine,
        watched(config(engine, tmp_path_factory.mktemp("s")), engine) as it,
    ):
        yield it


@pytest_asyncio.fixture(loop_scope="module")
async def at(here: Watched) -> Watched:
    """With a fresh script, and without old spans."""
    here.home.engine.forget()
    forget(here.home.gateway.pool)
    await here.home.settle()
    here._memory.clear()
    return here


async def test_a_streamed_reply_is_one_server_span_in_the_conventions_words(at: Watched) -> None:
    at.home.engine.play(
        Head(), Say(role()), Say(thought("Hm.")), Say(text("One. ")), Say(text("Two.")), Say(finish("length")),
        Say(usage(9, prompt=7)), Say(DONE),
    )  # fmt: skip
    await at.home.ask(stream=True, headers={"x-request-id": "turn-3"}, **THINK)
    span = await at.span()
    found: dict[str, Any] = dict(span.attributes or {})
    assert (span.name, span.kind, span.status.status_code) == (
        "chat annie",
        SpanKind.SERVER,
        StatusCode.UNSET,
    )
    assert found.pop("gen_ai.response.id").startswith("chatcmpl-")
    assert found.pop("gen_ai.response.time_to_first_chunk") > 0
    assert found == {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "manners",
        "gen_ai.request.model": "annie",
        "gen_ai.request.stream": True,
        "gen_ai.response.model": "scripted",
        "gen_ai.response.finish_reasons": ("length",),
        "gen_ai.usage.input_tokens": 7,
        "gen_ai.usage.output_tokens": 9,
        "server.address": "127.0.0.1",
        "server.port": 0,
        "http.route": "/v1/chat/completions",
        "manners.request_id": "turn-3",
        "manners.outcome": "ok",
        "manners.engine": "scripted",
        "manners.failovers": 0,
        "manners.thinking_stripped": True,
    }
    assert 0 < (span.start_time or 0) <= (span.end_time or 0)


@pytest.mark.parametrize(
    ("path", "body", "steps", "operation", "finishes"),
    [
        ("completions", {"prompt": "x"}, reply("One"), "text_completion", True),
        ("embeddings", {"input": "x"}, vectors(0.5), "embeddings", False),
        ("messages", {"messages": [{"role": "user", "content": "x"}], "max_tokens": 5}, (), "chat", True),
        ("responses", {"input": "x"}, (), "chat", True),
    ],
)
async def test_every_api_names_its_operation(
    at: Watched, path: str, body: Any, steps: Any, operation: str, finishes: bool
) -> None:
    """Vectors have no finish reason and hide no thought."""
    if steps:
        at.home.engine.play(*steps)
    async with at.home.client.post(f"{at.home.url}/v1/{path}", json={"model": "annie", **body}) as response:
        assert response.status == 200, await response.read()
    span = await at.span()
    found = span.attributes or {}
    assert (span.name, found["gen_ai.operation.name"]) == (f"{operation} annie", operation)
    assert found["http.route"] == f"/v1/{path}"
    assert ("gen_ai.response.finish_reasons" in found) == ("manners.thinking_stripped" in found) == finishes


async def test_the_callers_span_is_the_parent_and_ours_is_the_engines(at: Watched) -> None:
    """One trace from end to end; its state goes along."""
    await at.home.ask(headers={"traceparent": CALLER, "tracestate": "a=1"})
    span, seen = await at.span(), await at.home.engine.request()
    context, parent = span.get_span_context(), span.parent
    assert context and parent
    assert f"{parent.trace_id:032x}-{parent.span_id:016x}" == CALLER[3:-3] and parent.is_remote
    assert seen.headers["traceparent"] == f"00-{parent.trace_id:032x}-{context.span_id:016x}-01"
    assert seen.headers["traceparent"] != CALLER
    assert seen.headers["tracestate"] == "a=1"


ENDS: dict[str, tuple[tuple[Any, ...], Any, str, str, bool]] = {
    # what the engine does, what is asked: the outcome, error.type, and whether it is the server's error
    "no JSON": ((), b"{", "client_error", "invalid_json", False),
    "a refusal": (status(400, {"error": {"message": "m", "code": "context_too_long"}}), None, "client_error", "context_too_long", False),
    "a 500": (status(500), None, "upstream_error", "upstream_status", True),
    "an end in mid-reply": ((Head(), Say(text("One")), CloseNow()), None, "upstream_error", "upstream_truncated", True),
}  # fmt: skip


@pytest.mark.parametrize("name", ENDS)
async def test_what_went_wrong_is_told_by_its_code(at: Watched, name: str) -> None:
    """4xx is the caller's and leaves the status unset, as the conventions have it for servers."""
    steps, body, outcome, code, is_ours = ENDS[name]
    if steps:
        at.home.engine.play(*steps)
    await at.home.ask(body, stream=True)
    span = await at.span()
    found = span.attributes or {}
    assert (found["manners.outcome"], found["error.type"]) == (outcome, code)
    assert span.status.status_code is (StatusCode.ERROR if is_ours else StatusCode.UNSET)
    assert span.status.description is None
    assert found.get("gen_ai.response.finish_reasons") == (("error",) if steps else None)


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("place", PLACES)
async def test_no_word_of_a_conversation_is_in_a_span(at: Watched, place: str, stream: bool) -> None:
    """Wherever the canary sits: in no name, attribute, event or status, and in nothing around them."""
    asked, steps = PLACES[place]
    if steps:
        at.home.engine.play(*steps)
    await at.home.ask({**asked, "stream": stream} if isinstance(asked, dict) else asked)
    assert CANARY not in (await at.span()).to_json()


# Over the wire.


TAKEN = b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n"


async def test_a_collector_that_hangs_delays_no_request_and_not_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It takes the first batch and never answers; the callers' replies go on, and the exporter waits when all is over."""
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "10")
    monkeypatch.setattr(otel, "FLUSH_SECONDS", 0.1)
    with ExitStack() as stack:
        collector, sent = stack.enter_context(socket.create_server(("127.0.0.1", 0))), b""
        async with ScriptedEngine() as engine:
            endpoint = f"http://127.0.0.1:{collector.getsockname()[1]}"
            tracing = tracing_for(asked_for(endpoint, tmp_path))
            async with run(config(engine, tmp_path), engine, tracing=tracing) as home:
                await home.ask()
                connection = stack.enter_context((await asyncio.to_thread(collector.accept))[0])
                while b"chat annie" not in sent:
                    sent += await asyncio.to_thread(connection.recv, 1 << 16)
                answers = [(await home.ask(stream=True)).status for _ in range(20)]
        connection.setblocking(False)
        with pytest.raises(BlockingIOError):
            connection.recv(1)
        connection.setblocking(True)
        connection.sendall(TAKEN)
        with suppress(OSError):  # until the exporter has handed in the rest
            while await asyncio.to_thread(connection.recv, 1 << 16):
                connection.sendall(TAKEN)
    assert answers == [200] * 20
    assert sent.startswith(b"POST /v1/traces ") and b"service.name" in sent


# Off, and wrong.


@pytest.mark.slow  # a gateway is started by itself: 4 s
async def test_what_is_off_is_not_imported() -> None:
    """Neither the SDK and the exporter, nor the gates' client, which only a promotion needs, in a process that has a whole gateway."""
    code = """
import json, sys
from app.config.config import load
from app.wiring import Gateway
from app.telemetry import log
Gateway(load(None, {}), "token", log.configure())
print(json.dumps([m for m in sys.modules if m.startswith(("opentelemetry.sdk", "opentelemetry.exporter", "app.proxy.otel", "aiohttp", "redis", "app.access.shared"))]))
"""
    ran = await asyncio.to_thread(
        subprocess.run, [sys.executable, "-c", code], capture_output=True, check=True, text=True,
        cwd=Path(__file__).parents[3],
    )  # fmt: skip
    assert json.loads(ran.stdout) == []


def asked_for(endpoint: Any, base: Path) -> Any:
    """A configuration with this endpoint."""
    engines = {"far": {"dialect": "vllm", "driver": "url", "url": "http://127.0.0.1:9"}}
    telemetry = {"otlp_endpoint": endpoint}
    return parse({"engines": engines, "models": {"annie": {"live": "far"}}, "telemetry": telemetry}, base)


async def test_a_missing_extra_is_one_line_with_its_cure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [m for m in sys.modules if m.startswith("opentelemetry.exporter") or m == "app.proxy.otel"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.delattr("app.proxy.otel")
    monkeypatch.setitem(sys.modules, "opentelemetry.exporter.otlp.proto.http.trace_exporter", None)
    with pytest.raises(ConfigError, match=r"telemetry.otlp_endpoint: .* pip install opentelemetry-sdk=="):
        tracing_for(asked_for("http://127.0.0.1:4318", tmp_path))
