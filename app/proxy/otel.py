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

from app.api.embeddings import Embeddings
from app.api.surface import Counts
from app.config.config import Address
from app.config.version import VERSION
from app.errors.tree import MannersError
from app.proxy.context import RequestContext
from app.proxy.deadlines import ClientGone

FLUSH_SECONDS = 2.0  # how long the end of the gateway waits for a collector
PATH = "/v1/traces"
OPERATIONS = {"/v1/completions": "text_completion", "/v1/embeddings": "embeddings"}
"""gen_ai.operation.name by path; everything else is chat."""
FINISHES = frozenset({"stop", "length", "tool_calls", "content_filter", "function_call", "error"})
OTHER = "_OTHER"  # what the conventions call a value that is on no list
_W3C = TraceContextTextMapPropagator()


def exporting(endpoint: str, listen: Address) -> "Spans":
    """Spans that go to a collector; `endpoint` with or without /v1/traces."""
    base = endpoint.rstrip("/").removesuffix(PATH)
    ours = Resource.create({"service.name": "manners", "service.version": VERSION})
    # Attributes of the environment win. No atexit: `close` exports the rest, for a bounded time.
    provider = TracerProvider(resource=ours.merge(OTELResourceDetector().detect()), shutdown_on_exit=False)
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(endpoint=base + PATH)))
    return Spans(provider, listen)


class Spans:
    """One server span a request. The caller's span is its parent, and it is the engine's."""

    def __init__(self, provider: TracerProvider, listen: Address) -> None:
        self._provider, self._listen = provider, listen
        self._tracer = provider.get_tracer("manners", VERSION)

    def begin(self, context: RequestContext) -> None:
        """Samplers see what is asked for, and the engine gets this span's id instead of the caller's."""
        context.span = self._start(context)
        context.engine_headers = {"x-request-id": context.engine_id}
        _W3C.inject(context.engine_headers, set_span_in_context(context.span))

    def ended(self, context: RequestContext, outcome: str) -> None:
        """Everything that is known at the end."""
        span = context.span or self._start(context)
        error = None if isinstance(context.error, ClientGone) else context.error
        found = _of_reply(context) if context.was_tried else {}
        found |= {
            "manners.outcome": outcome,
            "manners.engine": context.engine,
            "manners.failovers": context.failovers,
            "error.type": error.code if isinstance(error, MannersError) else error and OTHER,
        }
        span.set_attributes(_stated(found))
        if isinstance(error, MannersError) and error.status >= 500:
            span.set_status(Status(StatusCode.ERROR))
        span.end()

    def _start(self, context: RequestContext) -> Any:
        path, model = context.surface.path, context.public_name
        operation = OPERATIONS.get(path, "chat")
        attributes = {
            "gen_ai.operation.name": operation,
            "gen_ai.provider.name": "manners",
            "gen_ai.request.model": model,
            "gen_ai.request.stream": context.stream or None,
            "http.route": path,
            "manners.request_id": context.request_id,
            "server.address": self._listen.host,
            "server.port": self._listen.port,
        }
        return self._tracer.start_span(
            operation if model is None else f"{operation} {model}",
            _W3C.extract(context.engine_headers),
            SpanKind.SERVER,
            attributes=_stated(attributes),
            start_time=time.time_ns() - int((time.perf_counter() - context.received) * 1e9),
        )

    async def close(self) -> None:
        """Export what is left, for FLUSH_SECONDS at most: a hung collector must not block the shutdown."""
        thread = threading.Thread(target=self._provider.shutdown, name="spans", daemon=True)
        thread.start()
        await asyncio.to_thread(thread.join, FLUSH_SECONDS)


def _stated(attributes: dict[str, Any]) -> dict[str, Any]:
    """Those that are known."""
    return {name: value for name, value in attributes.items() if value is not None}


def _of_reply(context: RequestContext) -> dict[str, Any]:
    """Attributes of an engine's reply; the finish reason is "error" if it did not end."""
    counts, has_counts = Counts.of(context.usage), context.usage is not None
    found: dict[str, Any] = {
        "gen_ai.response.id": context.head.id or None,
        "gen_ai.response.model": context.route.served_name,
        "gen_ai.usage.input_tokens": counts.given if has_counts else None,
        "gen_ai.usage.output_tokens": counts.made if has_counts else None,
        "gen_ai.usage.cache_read.input_tokens": counts.cached or None,
        "gen_ai.usage.reasoning.output_tokens": counts.thought or None,
    }
    if isinstance(context.surface, Embeddings):
        return found
    clocks, audit, is_hidden = context.clocks, context.audit, context.head.reasoning == "strip"
    finish = audit.reason if context.error is None and audit.reason else "error"
    first = clocks.first_content if is_hidden else clocks.first_token
    return found | {
        "manners.thinking_stripped": is_hidden and bool(audit.stripped),
        "gen_ai.response.finish_reasons": [finish if finish in FINISHES else OTHER],
        "gen_ai.response.time_to_first_chunk": first - clocks.start if context.stream and first else None,
    }
