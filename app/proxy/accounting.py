"""Request accounting: what every finished request leaves in the metrics, the log and its trace."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from msgspec.structs import replace

from app.api.surface import Counts
from app.engines.backend import FaultAttribution
from app.errors.tree import (
    UPSTREAM_CODES,
    Busy,
    EngineTimeout,
    KeyLimited,
    RequestError,
    Unauthorized,
    Unavailable,
    UpstreamError,
)
from app.proxy.context import RequestContext
from app.proxy.deadlines import ClientGone
from app.telemetry.log import Logger
from app.telemetry.metrics import UNKNOWN, Metrics
from app.telemetry.reply_window import ReplyOutcome, ReplyWindow, ended_as, wait_of

if TYPE_CHECKING:  # an extra
    from app.proxy.otel import Spans


@dataclass
class RequestAccounting:
    """Counts and logs requests, each exactly once, and informs the reply window, the trace and `observe`."""

    metrics: Metrics
    log: Logger
    reply_window: ReplyWindow
    tracing: "Spans | None"
    observe: Callable[[RequestContext, ReplyOutcome], None] | None = None  # what an engine was asked for

    def closed(self, context: RequestContext) -> None:
        """Record a request that is over. Latencies count only if it succeeded."""
        outcome = outcome_of(context.error)
        model = context.public_name or UNKNOWN
        facts: dict[str, Any] = {"key": context.account.name}
        if isinstance(context.error, KeyLimited):
            self.metrics.count("manners_key_limited_total", context.account.name, context.error.code)
        if context.public_name is not None:
            facts |= {"stream": context.stream, "ignored_fields": len(context.ignored)}
        if context.was_tried:
            breaches = context.audit.breaches()
            facts |= self._reply(context, model, breaches)
            reply = _reply_outcome(context, outcome, breaches)
            self._record(context, model, reply)
            if self.observe is not None:
                self.observe(context, reply)
        self.metrics.count("manners_requests_total", model, context.engine, outcome)
        self.log.info(
            "request",
            request_id=context.request_id,
            model=model,
            engine=context.engine,
            outcome=outcome,
            code=getattr(context.error, "code", None),
            **facts,
        )
        if self.tracing is not None:
            self.tracing.ended(context, outcome)

    def failed_over(self, context: RequestContext, error: UpstreamError) -> None:
        """Record an engine's failure of a request that another engine may still answer."""
        model, engine = context.parsed.chat.model, context.engine
        reason = error.code if error.code in UPSTREAM_CODES else "engine_error"
        self.metrics.count("manners_failovers_total", model, engine, reason)
        self._count(context, model, set(), context.audit.breaches())
        self._record(context, model, ReplyOutcome(ended_as(outcome_of(error), error.code)))

    def _count(self, context: RequestContext, model: str, stripped: set[str], breaches: set[str]) -> None:
        """Count breaches that the request did not force; each asks for a behaviour probe of the engine."""
        caller, breaches = context.account.name, set() if breaches and context.is_forced else breaches
        self.metrics.record_violations(model, context.engine, caller, stripped, breaches, context.calls)
        if breaches:
            context.route.backend.doubt(caller)

    def _record(self, context: RequestContext, model: str, reply: ReplyOutcome) -> None:
        """Record a fault once it is known whether the engine or the request caused it."""
        engine, attribution = context.engine, context.attribution
        if context.is_forced:
            return
        if attribution is None or reply.ended != "failed":
            return self.reply_window.add(model, engine, reply)

        def decided(attribution: FaultAttribution) -> None:
            at_fault = not attribution.cancelled() and attribution.result()
            self.reply_window.add(model, engine, reply if at_fault else replace(reply, ended="other"))

        attribution.add_done_callback(decided)

    def _reply(self, context: RequestContext, model: str, breaches: set[str]) -> dict[str, Any]:
        """Metrics and log fields of the reply of the engine that was asked last."""
        clocks, engine, begun = context.clocks, context.engine, context.clocks.start
        stripped = context.audit.stripped if context.head.reasoning == "strip" else set()
        self._count(context, model, stripped, breaches)
        if context.cut is not None:
            self.metrics.count("manners_thinking_cut_total", model, engine, context.cut)
        key, counts = context.account.name, Counts.of(context.usage)
        tokens = counts.made
        for kind, count in (("prompt", counts.given), ("completion", tokens), ("cached", counts.cached)):
            self.metrics.child("manners_tokens_total", model, key, kind).inc(count)
        marks = clocks.first_token, clocks.first_content, clocks.first_sentence, context.ended
        token, content, sentence, seconds = [None if at is None else round(at - begun, 6) for at in marks]
        if context.error is None and seconds is not None:
            clocked = tokens if context.parsed.count == 1 else 0  # the clocks are of one choice
            times = {
                "gen_ai_server_time_to_first_token_seconds": token,
                "gen_ai_server_time_per_output_token_seconds": clocks.time_per_output_token(clocked),
                "gen_ai_server_request_duration_seconds": seconds,
                "manners_gateway_overhead_seconds": context.overhead,
            }
            if context.stream:  # else the caller gets all of it at its end
                times["manners_stream_max_gap_seconds"] = clocks.max_gap
                times["manners_time_to_first_content_seconds"] = content
                times["manners_time_to_first_sentence_seconds"] = sentence
            for name, took in times.items():
                if took is not None:
                    self.metrics.child(name, model, engine).observe(took)
        return {
            "first_token": token,
            "first_content": content,
            "first_sentence": sentence,
            "seconds": seconds,
            "prompt_tokens": counts.given,
            "completion_tokens": tokens,
            "cached_tokens": counts.cached,
            "calls": context.calls,
            "stripped": sorted(stripped),
            "breaches": sorted(breaches),
            "thought_cut": context.cut,
        }


def _reply_outcome(context: RequestContext, outcome: str, breaches: set[str]) -> ReplyOutcome:
    """What one reply says about its engine. After a failover its times are not used: they hold another engine's, too."""
    wait, shown = None, True
    if context.stream and not context.failovers:
        gave_up = time.perf_counter() if outcome == "client_cancel" else None
        wait, shown = wait_of(context.clocks, context.queued, gave_up)
    ended = ended_as(outcome, getattr(context.error, "code", None))
    return ReplyOutcome(ended, context.audit.is_judgeable, frozenset(breaches), wait, shown)


_OUTCOMES: Final[tuple[tuple[Any, str], ...]] = (
    (type(None), "ok"),
    (ClientGone, "client_cancel"),
    (EngineTimeout, "timeout"),
    (RequestError | Unauthorized, "client_error"),
    (KeyLimited, "limited"),
    (Busy | Unavailable, "busy"),
    (UpstreamError, "upstream_error"),
)


def outcome_of(error: BaseException | None) -> str:
    """The label of manners_requests_total."""
    return next((outcome for kind, outcome in _OUTCOMES if isinstance(error, kind)), "error")
