"""Spans for OpenTelemetry: one a request, in the words of its GenAI conventions, sent over OTLP and HTTP.

Names are those of open-telemetry/semantic-conventions-genai (gen_ai.*, in development) and of the stable registry
(error.type, server.*, http.route); the rest is `manners.*`. A span holds names, numbers, ids and codes, and no text that
a caller or a model wrote.

A span is made and ended without a wait; a thread of the SDK exports in batches, and drops spans if the collector is
slow. The SDK's own OTEL_* variables (headers, sampler, resource) apply.
"""

import asyncio
import threading
import time
from typing import Any

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace import SpanKind, Status, StatusCode, set_span_in_context
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
from opentelemetry.util.types import AttributeValue

from app.api.embeddings import Embeddings
from app.api.surface import Counts
from app.config.config import Address
from app.config.version import VERSION
from app.errors.tree import MannersError
from app.proxy.context import RequestContext, Tracing
from app.proxy.deadlines import ClientGone

FLUSH_SECONDS = 2.0
"""How long the end of the gateway waits for a collector."""
CLOSER = "spans"
"""The thread that waits for it."""
PATH = "/v1/traces"
OPERATIONS = {"/v1/completions": "text_completion", "/v1/embeddings": "embeddings"}
"""gen_ai.operation.name by path; everything else is chat."""
FINISHES = frozenset({"stop", "length", "tool_calls", "content_filter", "function_call", "error"})
OTHER = "_OTHER"
"""What the conventions call a value that is on no list."""
_W3C = TraceContextTextMapPropagator()

Attributes = dict[str, AttributeValue]


def exporting(endpoint: str, listen: Address) -> "Spans":
    """Spans that go to a collector; `endpoint` with or without /v1/traces."""
    base = endpoint.rstrip("/").removesuffix(PATH)
    # No atexit: `close` exports the rest, for a bounded time.
    provider = TracerProvider(resource=_resource(), shutdown_on_exit=False)
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(endpoint=base + PATH)))
    return Spans(provider, listen)


def _resource() -> Resource:
    """This service's attributes; those of the environment win."""
    ours = Resource.create({"service.name": "manners", "service.version": VERSION})
    return ours.merge(OTELResourceDetector().detect())


class Spans(Tracing):
    """One server span a request. The caller's span is its parent, and it is the engine's."""

    def __init__(self, provider: TracerProvider, listen: Address) -> None:
        self._provider = provider
        self._tracer = provider.get_tracer("manners", VERSION)
        self._server: Attributes = {"server.address": listen.host, "server.port": listen.port}

    def begin(self, context: RequestContext) -> None:
        """Samplers see what is asked for, and the engine gets this span's id instead of the caller's."""
        asked: Attributes = {"gen_ai.request.model": context.public_name or ""}
        if context.stream:
            asked["gen_ai.request.stream"] = True
        context.span = self._start(context, asked)
        context.engine_headers = {"x-request-id": context.engine_id}
        _W3C.inject(context.engine_headers, set_span_in_context(context.span))

    def ended(self, context: RequestContext, outcome: str) -> None:
        """Everything that is known at the end."""
        span = context.span or self._start(context, {})
        if span.is_recording():
            span.set_attributes(_of_end(context, outcome))
            if context.was_tried:
                clocks = context.clocks
                marks = {"token": clocks.first_token}
                if context.stream:
                    marks |= {"content": clocks.first_content, "sentence": clocks.first_sentence}
                for name, mark in marks.items():
                    if mark is not None:
                        at = span.start_time + int((mark - context.received) * 1e9)
                        span.add_event(f"manners.first_{name}", timestamp=at)
            if isinstance(context.error, MannersError) and context.error.status >= 500:
                span.set_status(Status(StatusCode.ERROR))
        span.end()

    def _start(self, context: RequestContext, more: Attributes) -> Any:
        path = context.surface.path
        operation = OPERATIONS.get(path, "chat")
        attributes: Attributes = {
            "gen_ai.operation.name": operation,
            "gen_ai.provider.name": "manners",
            "http.route": path,
            "manners.request_id": context.request_id,
            **self._server,
            **more,
        }
        return self._tracer.start_span(
            operation if context.public_name is None else f"{operation} {context.public_name}",
            _W3C.extract(context.engine_headers),
            SpanKind.SERVER,
            attributes=attributes,
            start_time=time.time_ns() - int((time.perf_counter() - context.received) * 1e9),
        )

    async def close(self) -> None:
        """Export what is left, for FLUSH_SECONDS at most: a hung collector must not block the shutdown."""
        thread = threading.Thread(target=self._provider.shutdown, name=CLOSER, daemon=True)
        thread.start()
        await asyncio.to_thread(thread.join, FLUSH_SECONDS)


def _of_end(context: RequestContext, outcome: str) -> Attributes:
    """The outcome, and the attributes of an engine's reply."""
    found: Attributes = {"manners.outcome": outcome, "manners.engine": context.engine}
    found["manners.failovers"] = context.failovers
    if context.error is not None and not isinstance(context.error, ClientGone):
        found["error.type"] = context.error.code if isinstance(context.error, MannersError) else OTHER
    if not context.was_tried:
        return found
    counts = Counts.of(context.usage)
    if context.head.id:
        found["gen_ai.response.id"] = context.head.id
    found["gen_ai.response.model"] = context.route.served_name
    if context.usage is not None:
        found["gen_ai.usage.input_tokens"] = counts.given
        found["gen_ai.usage.output_tokens"] = counts.made
    if counts.cached:
        found["gen_ai.usage.cache_read.input_tokens"] = counts.cached
    if counts.thought:
        found["gen_ai.usage.reasoning.output_tokens"] = counts.thought
    return found if isinstance(context.surface, Embeddings) else found | _of_words(context)


def _of_words(context: RequestContext) -> Attributes:
    """The attributes of a reply with text; the finish reason is "error" if it did not end."""
    hidden, clocks, reason = context.head.reasoning == "strip", context.clocks, context.audit.reason
    finish = "error" if context.error is not None or reason is None else reason
    found: Attributes = {
        "manners.thinking_stripped": hidden and bool(context.audit.stripped),
        "gen_ai.response.finish_reasons": [finish if finish in FINISHES else OTHER],
    }
    first = clocks.first_content if hidden else clocks.first_token
    if context.stream and first is not None:
        found["gen_ai.response.time_to_first_chunk"] = first - clocks.start
    return found
