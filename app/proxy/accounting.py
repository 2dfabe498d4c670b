"""The books: what every request that is over leaves in the metrics, in the log and in its trace."""

import time
from dataclasses import replace
from typing import Any, Protocol

from app.engines.backend import Judgement
from app.errors.tree import Busy, Draining, EngineTimeout, RequestError, Unauthorized, UpstreamError
from app.proxy.deadlines import ClientGone
from app.proxy.exchange import Exchange
from app.proxy.tracing import Ending, Trace
from app.telemetry.log import Logger
from app.telemetry.metrics import UNKNOWN, Metrics
from app.telemetry.reply_window import Heard, ReplyWindow, ended_as, wait_of

NO_ENGINE = "none"
"""The engine label of requests that reached no engine."""


class Observer(Protocol):
    """Wants to see finished exchanges; the shadow recorder is one."""

    def take(self, model: str, engine: str, exchange: Exchange, heard: Heard) -> None:
        """A request is over."""


class RequestAccounting:
    """Counts and logs requests, each exactly once, and lets the ear hear them, and the shadow."""

    def __init__(
        self, metrics: Metrics, log: Logger, reply_window: ReplyWindow, shadow: Observer | None = None
    ) -> None:
        self._metrics = metrics
        self._log = log
        self._ear = reply_window
        self._shadow = shadow

    def refused(self, trace: Trace, error: BaseException) -> None:
        """A request that was turned away before its model was known."""
        self._close(trace, UNKNOWN, Ending(outcome_of(error), error, NO_ENGINE), {})

    def closed(
        self, trace: Trace, model: str, ending: Ending, judgement: Judgement | None = None, **facts: Any
    ) -> None:
        """A request that asked for `model`, and what became of it. Latencies count only if all went well.

        `judgement`: whether its engine was to blame, if it failed.
        """
        if ending.exchange is not None:
            breaches = ending.exchange.audit.breaches()
            facts |= self._exchange(model, ending.engine, ending.exchange, ending.error, breaches)
            heard = _heard(ending, ending.exchange, breaches)
            self._hear(model, ending.engine, heard, judgement)
            if self._shadow is not None:
                self._shadow.take(model, ending.engine, ending.exchange, heard)
        self._close(trace, model, ending, facts)

    def failed_over(
        self, model: str, engine: str, error: UpstreamError, judgement: Judgement | None = None
    ) -> None:
        """An engine failed a request that another one may still answer: nobody else will tell of it."""
        self._metrics.failover(model, engine, error.code)
        self._hear(model, engine, Heard(ended_as(outcome_of(error), error.code)), judgement)

    def _hear(self, model: str, engine: str, heard: Heard, judgement: Judgement | None) -> None:
        """A fault is heard once it is known whose it was: a request's own counts against no engine."""
        if judgement is None or heard.ended != "failed":
            return self._ear.hear(model, engine, heard)

        def decided(judgement: Judgement) -> None:
            at_fault = not judgement.cancelled() and judgement.result()
            self._ear.hear(model, engine, heard if at_fault else replace(heard, ended="other"))

        judgement.add_done_callback(decided)

    def _exchange(
        self, model: str, engine: str, exchange: Exchange, error: BaseException | None, breaches: set[str]
    ) -> dict[str, Any]:
        clocks, audit = exchange.clocks, exchange.audit
        stripped = audit.stripped if exchange.head.reasoning == "strip" else set()
        self._metrics.manners(model, engine, stripped, breaches, exchange.calls)
        if exchange.cut is not None:
            self._metrics.thought_cut(model, engine, exchange.cut)
        tokens = exchange.usage.tokens("completion_tokens") if exchange.usage else 0
        if error is None and exchange.ended is not None:
            self._metrics.latency(
                model,
                engine,
                clocks,
                streamed=exchange.stream,
                end=exchange.ended,
                tokens=tokens,
                overhead=exchange.overhead,
            )
        return {
            "first_token": _since(clocks.start, clocks.first_token),
            "first_content": _since(clocks.start, clocks.first_content),
            "first_sentence": _since(clocks.start, clocks.first_sentence),
            "seconds": _since(clocks.start, exchange.ended),
            "completion_tokens": tokens,
            "calls": exchange.calls,
            "stripped": sorted(stripped),
            "breaches": sorted(breaches),
            "thought_cut": exchange.cut,
        }

    def _close(self, trace: Trace, model: str, ending: Ending, facts: dict[str, Any]) -> None:
        self._metrics.finished(model, ending.engine, ending.outcome)
        self._log.info(
            "request",
            request_id=trace.request_id,
            model=model,
            engine=ending.engine,
            outcome=ending.outcome,
            code=getattr(ending.error, "code", None),
            **facts,
        )
        trace.ended(ending)


def _heard(ending: Ending, exchange: Exchange, breaches: set[str]) -> Heard:
    """What one reply tells of its engine. After a failover its clocks hold another engine's time, too."""
    wait, shown = None, True
    if exchange.stream and not ending.failovers:
        gave_up = time.perf_counter() if ending.outcome == "client_cancel" else None
        wait, shown = wait_of(exchange.clocks, exchange.queued, gave_up)
    ended = ended_as(ending.outcome, getattr(ending.error, "code", None))
    return Heard(ended, exchange.audit.heard, frozenset(breaches), wait, shown)


def outcome_of(error: BaseException | None) -> str:
    """The label of manners_requests_total."""
    if error is None:
        return "ok"
    if isinstance(error, ClientGone):
        return "client_cancel"
    if isinstance(error, EngineTimeout):
        return "timeout"
    if isinstance(error, RequestError | Unauthorized):
        return "client_error"
    if isinstance(error, Busy | Draining):
        return "busy"
    return "upstream_error" if isinstance(error, UpstreamError) else "error"


def _since(start: float, mark: float | None) -> float | None:
    return None if mark is None else round(mark - start, 6)
