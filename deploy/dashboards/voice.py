"""The dashboard of replies as callers see them: latency, decoding, manners, requests."""

from typing import Final

from deploy.dashboards.panel import (
    Annotation,
    Dashboard,
    HeatmapPanel,
    PanelRow,
    Query,
    StatPanel,
    TimeSeriesPanel,
    Variable,
)
from deploy.dashboards.promql import CHOSEN, MODEL, WINDOW, buckets, per_minute, per_second, quantile

TOKEN: Final = "gen_ai_server_time_to_first_token_seconds"
CONTENT: Final = "manners_time_to_first_content_seconds"
SENTENCE: Final = "manners_time_to_first_sentence_seconds"
PER_TOKEN: Final = "gen_ai_server_time_per_output_token_seconds"
GAP: Final = "manners_stream_max_gap_seconds"
DURATION: Final = "gen_ai_server_request_duration_seconds"
OVERHEAD: Final = "manners_gateway_overhead_seconds"

DEAF: Final = (
    "count by (job, instance, model) (manners_active_engine == 1) unless on (job, instance, model)"
    " (manners_active_engine == 1 and on (job, instance, engine) manners_engine_ready == 1)"
)
"""Models none of whose live engines gives tokens."""
LEVEL_S: Final = 0.5
"""The service level's threshold; `rules/recording.yml` has the same, and a test compares them."""
BUDGET: Final = 0.05
"""The error budget: the share of replies that may be later."""
QUANTILES: Final = (0.5, 0.95, 0.99)

VARIABLES: Final = (
    Variable("model", "label_values(manners_active_engine, model)"),
    Variable("engine", "label_values(manners_engine_ready, engine)"),
)
PROMOTIONS: Final = Annotation(
    "Promotions",
    Query(
        f"(manners_active_engine{{{CHOSEN}}} == 1) unless (manners_active_engine offset $__interval == 1)"
        " and on (job, instance, model) (manners_active_engine offset $__interval == 1)",
        "{{engine}} is live for {{model}}",
    ),
    "purple",
)
"""Times at which an engine became live in place of another; the start of a gateway does not count. The offset is one
step, so that each change is one line at every zoom level; a fixed offset is missed where Grafana's steps are longer."""


def _now(q: float) -> StatPanel:
    about = f"{q:.0%} of replies in the last minutes showed their first word or call within this time."
    query = Query(quantile(q, CONTENT), "first content")
    return StatPanel(f"First content, p{q * 100:.0f}", about, (query,), "s", 4, 4, limit=LEVEL_S)


_AT_A_GLANCE = PanelRow(
    "Now",
    (
        *(_now(q) for q in QUANTILES),
        StatPanel(
            "Budget left, 3 days",
            f"{1 - BUDGET:.0%} of replies are to begin within {LEVEL_S} s. What is left of the rest.",
            (Query(f'1 - model:manners_first_content_late:ratio_rate3d{{model=~"$model"}} / {BUDGET}', "{{model}}"),),
            "percentunit", 4, 4, limit=0.0, low_is_bad=True,
        ),
        StatPanel(
            "Tokens per second",
            "Of one stream, after its first token: what it decodes at, on average.",
            (Query(f"sum(rate({PER_TOKEN}_count{{{CHOSEN}}}[{WINDOW}])) / sum(rate({PER_TOKEN}_sum{{{CHOSEN}}}[{WINDOW}]))", "tokens"),),
            "tok/s", 4, 4,
        ),
        StatPanel(
            "Models without engine",
            "Models of whose live engines none gives tokens; fallbacks may be answering.",
            (Query(f"count({DEAF}) or vector(0)", "models"),),
            "short", 4, 4, limit=1.0,
        ),
    ),
)  # fmt: skip

_CLOCKS = PanelRow(
    "The three clocks: from the request's last byte in",
    (
        TimeSeriesPanel(
            "First content",
            "The first visible word or tool call. Thoughts, role frames and empty deltas do not stop this clock.",
            tuple(Query(quantile(q, CONTENT), f"p{q * 100:.0f}") for q in QUANTILES), "s", limit=LEVEL_S,
        ),
        TimeSeriesPanel(
            "Token, content, sentence: p95",
            "Any token, the first visible content, the first sentence that a voice can speak. Token early and content late: it thinks.",
            (Query(quantile(0.95, TOKEN), "first token"), Query(quantile(0.95, CONTENT), "first content"),
             Query(quantile(0.95, SENTENCE), "first sentence")), "s",
        ),
        TimeSeriesPanel(
            "First content by model and engine: p50", "The median for each engine that answered.",
            (Query(quantile(0.5, CONTENT, "model", "engine"), "{{model}} on {{engine}}"),), "s", limit=LEVEL_S,
        ),
        TimeSeriesPanel(
            "First content by model and engine: p95", "One reply in twenty is later than this.",
            (Query(quantile(0.95, CONTENT, "model", "engine"), "{{model}} on {{engine}}"),), "s", limit=LEVEL_S,
        ),
        HeatmapPanel("First token, how many and when", "Replies in each bucket.", (Query(buckets(TOKEN)),), "s", 8),
        HeatmapPanel("First content, how many and when", "Replies in each bucket.", (Query(buckets(CONTENT)),), "s", 8),
        HeatmapPanel("First sentence, how many and when", "Replies in each bucket.", (Query(buckets(SENTENCE)),), "s", 8),
    ),
)  # fmt: skip

_DECODE = PanelRow(
    "Decode",
    (
        TimeSeriesPanel(
            "Seconds per token", "After the first one, by the engine's own count of tokens.",
            (Query(quantile(0.5, PER_TOKEN, "engine"), "{{engine}} p50"),
             Query(quantile(0.95, PER_TOKEN, "engine"), "{{engine}} p95")), "s", 8,
        ),
        TimeSeriesPanel(
            "Longest silence in a reply: p95", "Between two visible pieces: what a listener takes for a stutter.",
            (Query(quantile(0.95, GAP, "engine"), "{{engine}}"),), "s", 8, limit=1.0,
        ),
        TimeSeriesPanel(
            "Whole reply: p95", "From the request's last byte in to the reply's last byte out.",
            (Query(quantile(0.95, DURATION, "engine"), "{{engine}}"),), "s", 8,
        ),
    ),
)  # fmt: skip

_MANNERS = PanelRow(
    "Manners",
    (
        TimeSeriesPanel(
            "Bad manners a minute, by detector",
            "Replies in which an engine leaked thoughts, wrote raw calls or markdown, said nothing, or went round in circles.",
            (Query(per_minute("manners_breach_total", "engine", "detector"), "{{engine}}: {{detector}}"),), "cpm", 6,
        ),
        TimeSeriesPanel(
            "Thoughts kept from callers a minute", "By how they were known: the engine's field, or tags in its text.",
            (Query(per_minute("manners_thinking_stripped_total", "engine", "kind"), "{{engine}}: {{kind}}"),), "cpm", 6,
        ),
        TimeSeriesPanel(
            "Thoughts cut a minute", "Those that outgrew a limit: of tokens, of time, or the engine's own.",
            (Query(per_minute("manners_thinking_cut_total", "engine", "reason"), "{{engine}}: {{reason}}"),), "cpm", 6,
        ),
        TimeSeriesPanel(
            "Tool calls a minute", "By who found them: the engine, the gateway in its text (rescued), or neither (invalid).",
            (Query(per_minute("manners_tool_calls_total", "engine", "source"), "{{engine}}: {{source}}"),), "cpm", 6,
        ),
    ),
)  # fmt: skip

_REQUESTS = PanelRow(
    "Requests",
    (
        TimeSeriesPanel(
            "Requests by how they ended", "A caller's cancel is no error.",
            (Query(per_second("manners_requests_total", "outcome"), "{{outcome}}"),), "reqps", 8, stacked=True,
        ),
        TimeSeriesPanel(
            "In flight and waiting", "Until the end of their streams; and in the queue.",
            (Query('sum by (model) (manners_in_flight{model=~"$model"})', "{{model}} in flight"),
             Query('sum by (model) (manners_queue_depth{model=~"$model"})', "{{model}} waiting")), "short", 8,
        ),
        TimeSeriesPanel(
            "The gateway's own share of the first content", "Without queue and engine.",
            (Query(quantile(0.5, OVERHEAD), "p50"), Query(quantile(0.99, OVERHEAD), "p99")), "s", 8,
        ),
    ),
)  # fmt: skip

_CALLERS = PanelRow(
    "Callers, by the names of their keys",
    (
        TimeSeriesPanel(
            "Tokens a second, by key", "By the engine's count; what it had cached is part of the prompt.",
            (Query(per_second("manners_tokens_total", "key", "kind", chosen=MODEL), "{{key}}: {{kind}}"),), "tok/s", 12,
        ),
        TimeSeriesPanel(
            "Requests a minute over their key's limits", "By the limit that refused them; they end as limited.",
            (Query(f"60 * sum by (key, code) (rate(manners_key_limited_total[{WINDOW}]))", "{{key}}: {{code}}"),), "cpm", 12,
        ),
    ),
)  # fmt: skip

VOICE: Final = Dashboard(
    "manners-voice",
    "Manners: voice",
    "What callers hear: how soon, how smoothly, and with which manners.",
    (_AT_A_GLANCE, _CLOCKS, _DECODE, _MANNERS, _REQUESTS, _CALLERS),
    VARIABLES,
    (PROMOTIONS,),
    {"Engines": "manners-engines"},
)
