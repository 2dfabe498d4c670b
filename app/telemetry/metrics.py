"""Every metric: its name, labels and buckets, in one place; one registry per gateway.

Buckets: reference set of the OTel GenAI conventions, refined where the latencies of a voice assistant lie (50 ms to 1 s), so
that SLO thresholds are bucket bounds.
"""

from collections.abc import Mapping
from typing import Any, Final

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    ProcessCollector,
    disable_created_metrics,
)

VOICE_BUCKETS = (
    0.02, 0.04, 0.05, 0.06, 0.08, 0.1, 0.125, 0.15, 0.2, 0.25, 0.3, 0.4, 0.5, 0.6, 0.75, 0.8,
    1.0, 1.25, 1.5, 2.0, 2.5, 5.0, 10.0, 30.0, 60.0,
)  # fmt: skip
DURATION_BUCKETS = (
    0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92,
)  # fmt: skip
PHASE_BUCKETS = (0.1, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1200.0, 3600.0)
TOKEN_BUCKETS = (0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5)
WAIT_BUCKETS = (0.0, 0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
OVERHEAD_BUCKETS = (0.0001, 0.00025, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1)

UNKNOWN = "_unknown"  # the label of every model name that the configuration does not hold
PROBE = "_probe"  # the label for the gateway's own requests to an engine, instead of a caller's key

METRICS: Final[tuple[tuple[Any, ...], ...]] = (
    (Counter, "manners_requests_total", "Requests, by how they ended.", "model engine outcome"),
    (Counter, "manners_failovers_total", "Requests moved from an engine to the next, by why.", "model engine reason"),
    (Counter, "manners_affinity_total", "Requests of models with replicas: to where their conversation is cached (hit), elsewhere (moved), or of none known (new).", "model result"),
    (Counter, "manners_shift_requests_total", "Requests while a promotion sends a share of the traffic to its candidate, by the side that got them.", "model side"),
    (Counter, "manners_thinking_stripped_total", "Replies in which thoughts were kept from the caller, by how they were known.", "model engine kind"),
    (Counter, "manners_breach_total", "Replies with bad manners that their requests did not force, by detector.", "model engine detector"),
    (Counter, "manners_bad_replies_total", "The same by the name of the caller's key; _probe: the gateway's own questions.", "model engine detector key"),
    (Counter, "manners_thinking_cut_total", "Thoughts that outgrew a limit, by which: tokens, or overrun (the engine broke its own).", "model engine reason"),
    (Counter, "manners_tool_calls_total", "Tool calls, by who found them.", "model engine source"),
    (Counter, "manners_shadow_dropped_total", "Chats that were to be recorded and were not, by why.", "reason"),
    (Counter, "manners_state_failures_total", "Uses of the state folder that failed, by code.", "code"),
    (Counter, "manners_promotions_total", "Promotions, by result.", "result"),
    (Counter, "manners_engine_faults_total", "Failed requests, by whether a probe found the engine or the request itself to blame.", "engine cause"),
    (Counter, "manners_reloads_total", "Reloads of configuration, keys and operators, by result.", "result"),
    (Counter, "manners_task_failures_total", "Background tasks that failed, by name.", "task"),
    (Counter, "manners_unauthorized_total", "Requests without a right key, by listener.", "listener"),
    (Counter, "manners_unreadable_total", "Requests refused at the listener: late, too large, no HTTP, or not from this machine.", "listener code"),
    (Counter, "manners_tokens_total", "Tokens by the engine's count, by the name of the caller's key: prompt, completion, or cached (of the prompt).", "model key kind"),
    (Counter, "manners_key_limited_total", "Requests refused because their key had used up a limit or a budget, by code.", "key code"),
    (Gauge, "manners_in_flight", "Requests being served.", "model"),
    (Gauge, "manners_queue_depth", "Requests waiting.", "model"),
    (Gauge, "manners_concurrency_limit", "Requests that are served at once, as configured.", "model"),
    (Gauge, "manners_queue_limit", "Requests that may wait, as configured.", "model"),
    (Gauge, "manners_active_engine", "1 for each live engine of a model.", "model engine"),
    (Gauge, "manners_shift_weight", "Percent of a model's conversations that go to the candidate of a promotion; 0 while none is shifting.", "model"),
    (Gauge, "manners_replica_refused", "1 for an engine that gets no requests: it is not what its report is about, or not what the other replicas are.", "engine"),
    (Gauge, "manners_engine_in_flight", "Requests that are open at an engine.", "engine"),
    (Gauge, "manners_engine_info", "1; what an engine is.", "engine dialect driver artefact_digest image_digest"),
    (Gauge, "manners_override_active", "Active overrides of a refusal to promote.", "model"),
    (Gauge, "manners_state_available", "0 from a failed use of the state folder's registry to the next good one; from a failed write, to the next that is written.", ""),
    (Gauge, "manners_limits_available", "0 while Redis, which [gateway] limits names, does not answer: callers' limits are divided by the gateways seen last.", ""),
    (Gauge, "manners_engine_ready", "1 while an engine streams.", "engine"),
    (Gauge, "manners_engine_conduct", "1 for whether an engine keeps thinking off when asked to: obeys, unknown or caught.", "engine state"),
    (Gauge, "manners_engine_restarts", "Restarts of an engine since it was started.", "engine"),
    (Gauge, "manners_live_gated", "1 if a model's live engine was promoted on a passing report; 0 if it serves ungated.", "model engine"),
    (Gauge, "manners_report_expected", "1 if there are reports about a model, or [gates] require is true: an engine without one is worth an alert.", "model"),
    (Gauge, "manners_live_override_ended", "1 if an override let a model's live engine in, and has expired or was withdrawn.", "model"),
    (Gauge, "manners_build_info", "1; what this gateway is.", "version python"),
    (Gauge, "manners_host_memory_available_bytes", "MemAvailable of the host.", ""),
    (Gauge, "manners_host_memory_floor_bytes", "Bytes of host memory that must stay available.", ""),
    (Gauge, "vllm:num_requests_running", "For an InferencePool's endpoint picker: manners_in_flight of all models.", ""),
    (Gauge, "vllm:num_requests_waiting", "For an InferencePool's endpoint picker: manners_queue_depth of all models.", ""),
    (Gauge, "vllm:kv_cache_usage_perc", "For an InferencePool's endpoint picker: the share of manners_concurrency_limit in use, of the busiest model. No cache is read.", ""),
    (Histogram, "gen_ai_server_time_to_first_token_seconds", "From the request's last byte in to the first generated token, thought or not.", "model engine", VOICE_BUCKETS),
    (Histogram, "manners_time_to_first_content_seconds", "From the request's last byte in to the first text or tool call that the caller is shown.", "model engine", VOICE_BUCKETS),
    (Histogram, "manners_time_to_first_sentence_seconds", "From the request's last byte in to the first sentence that a voice can speak.", "model engine", VOICE_BUCKETS),
    (Histogram, "gen_ai_server_time_per_output_token_seconds", "Seconds per generated token after the first, by the engine's own token count.", "model engine", TOKEN_BUCKETS),
    (Histogram, "gen_ai_server_request_duration_seconds", "From the request's last byte in to the reply's last byte out.", "model engine", DURATION_BUCKETS),
    (Histogram, "manners_gateway_overhead_seconds", "The gateway's own share of the time to first content, without queue and engine.", "model engine", OVERHEAD_BUCKETS),
    (Histogram, "manners_queue_wait_seconds", "Time that a request waited for a place, until it had one or gave up; 0 for most.", "model", WAIT_BUCKETS),
    (Histogram, "manners_stream_max_gap_seconds", "The longest silence between two visible pieces of one reply.", "model engine", VOICE_BUCKETS),
    (Histogram, "manners_promotion_phase_seconds", "Time spent in a phase.", "phase", PHASE_BUCKETS),
)  # fmt: skip
"""Each metric's kind, name, help and labels, and a histogram's buckets."""

ENGINE_GAUGES: Final = (
    "manners_engine_ready", "manners_engine_restarts", "manners_engine_in_flight", "manners_engine_conduct",
    "manners_replica_refused",
)  # fmt: skip
"""The gauges of an engine that runs."""


class Metrics:
    """The gateway's instruments. Labels: model (public name), engine; never a caller's text."""

    def __init__(self) -> None:
        disable_created_metrics()  # type: ignore[no-untyped-call]  # a second series for each counter and histogram
        registry = self.registry = CollectorRegistry()
        ProcessCollector(registry=registry)  # rules ask when the process began
        self._children: dict[tuple[str, ...], Any] = {}
        self._metrics: dict[str, Any] = {}
        for kind, name, text, labels, *buckets in METRICS:
            more = {"buckets": buckets[0]} if buckets else {}
            self._metrics[name] = kind(name, text, labels.split(), registry=registry, **more)

    def child(self, *series: str) -> Any:
        """A metric's child: its name, then its labels. Looked up once: prometheus_client locks and hashes."""
        child = self._children.get(series)
        if child is None:
            metric, labels = self._metrics[series[0]], series[1:]
            child = self._children[series] = metric.labels(*labels) if labels else metric
        return child

    def count(self, *series: str) -> None:
        """Add one to a counter. Safe in any thread."""
        self.child(*series).inc()

    def begin(self, name: str, *rows: tuple[str, ...]) -> None:
        """Create a counter's series at 0: Prometheus sees no increase in one that appears with 1."""
        for labels in rows:
            self.child(name, *labels)

    def gauge(self, name: str, value: float, *labels: str) -> None:
        """Set a gauge."""
        self.child(name, *labels).set(value)

    def remove(self, *series: str) -> None:
        """Remove a series."""
        if self._children.pop(series, None) is not None:
            self._metrics[series[0]].remove(*series[1:])

    def record_violations(
        self, model: str, engine: str, key: str, stripped: set[str], breaches: set[str], calls: list[str]
    ) -> None:
        """Count what one reply had removed from it, its breaches by detector, and its tool calls by source."""
        for kind in stripped:
            self.count("manners_thinking_stripped_total", model, engine, kind)
        for detector in breaches:
            self.count("manners_bad_replies_total", model, engine, detector, key)
            if key != PROBE:
                self.count("manners_breach_total", model, engine, detector)
        for source in calls:
            self.count("manners_tool_calls_total", model, engine, source)

    def engine(self, name: str, ready: bool, restarts: int) -> None:
        """Set an engine's state."""
        self.gauge("manners_engine_ready", ready, name)
        self.gauge("manners_engine_restarts", restarts, name)

    def put_down(self, name: str) -> None:
        """Remove the series of an engine that was stopped on purpose, so that no alert fires for it."""
        for metric, *labels in list(self._children):
            if metric.startswith(ENGINE_GAUGES) and labels[0] == name:
                self.remove(metric, *labels)

    def live(self, model: str, gated: Mapping[str, bool]) -> None:
        """Set the engines that serve a model, and whether each was promoted on a passing report; of others, remove what says so."""
        for name, *labels in list(self._children):
            if name == "manners_active_engine" and labels[0] == model:
                self.gauge(name, 0, *labels)
            elif name == "manners_live_gated" and labels[0] == model:
                self.remove(name, *labels)
        for engine, is_gated in gated.items():
            self.gauge("manners_active_engine", 1, model, engine)
            self.gauge("manners_live_gated", is_gated, model, engine)
