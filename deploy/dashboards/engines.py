"""The dashboard of the engines: readiness, promotions, memory, alerts."""

from typing import Final

from deploy.dashboards.panel import (
    Dashboard,
    PanelRow,
    Query,
    StateTimelinePanel,
    TablePanel,
    TimeSeriesPanel,
)
from deploy.dashboards.promql import per_minute, quantile
from deploy.dashboards.voice import PROMOTIONS, VARIABLES

_ENGINES = PanelRow(
    "Engines",
    (
        StateTimelinePanel(
            "Live", "The engines that each model is served by; a change is a promotion or a rollback.",
            (Query('manners_active_engine{model=~"$model",engine=~"$engine"}', "{{model}}: {{engine}}"),),
        ),
        StateTimelinePanel(
            "Gives tokens", "Seen to stream a real completion lately; not merely alive.",
            (Query('manners_engine_ready{engine=~"$engine"}', "{{engine}}"),),
        ),
        TablePanel(
            "What they are", "Digests as promotion and reports speak of them; empty where there is none.",
            (Query('manners_engine_info{engine=~"$engine"}'),), width=24, height=6,
            columns=("engine", "dialect", "driver", "artefact_digest", "image_digest"),
        ),
        TimeSeriesPanel(
            "Restarts", "Since the engine was started.",
            (Query('manners_engine_restarts{engine=~"$engine"}', "{{engine}}"),),
        ),
        TimeSeriesPanel(
            "Requests moved to another engine, a minute", "By the engine they left, and why.",
            (Query(per_minute("manners_failovers_total", "engine", "reason"), "{{engine}}: {{reason}}"),), "cpm",
        ),
        TimeSeriesPanel(
            "Failed requests a minute, by whose fault", "A probe right after the failure decides whether the engine or the request was at fault.",
            (Query(per_minute("manners_engine_faults_total", "engine", "cause"), "{{engine}}: {{cause}}"),), "cpm",
        ),
        TimeSeriesPanel(
            "Background tasks that failed", "Since the gateway started, by name; each is in the log as task_failed.",
            (Query("sum by (task) (manners_task_failures_total)", "{{task}}"),),
        ),
    ),
)  # fmt: skip

_PROMOTION = PanelRow(
    "Promotion",
    (
        TimeSeriesPanel(
            "Promotions by result", "Since the gateway started: they are few, and a rate does not see the first.",
            (Query("sum by (result) (manners_promotions_total)", "{{result}}"),),
        ),
        TimeSeriesPanel(
            "Time spent in each phase: median", "Of promotions since the gateway started.",
            (Query("histogram_quantile(0.5, sum by (le, phase) (manners_promotion_phase_seconds_bucket))", "{{phase}}"),),
            "s",
        ),
        StateTimelinePanel(
            "Active overrides", "While one is active, an engine that its gate refused may be promoted.",
            (Query('manners_override_active{model=~"$model"} > bool 0', "{{model}}"),), width=24, height=4,
        ),
    ),
)  # fmt: skip

_HOST = PanelRow(
    "Host",
    (
        TimeSeriesPanel(
            "Memory that is available", "MemAvailable: on unified memory no other figure includes what the GPU holds. At the floor a candidate is stopped.",
            (Query("manners_host_memory_available_bytes", "available"), Query("manners_host_memory_floor_bytes", "floor")), "bytes", 8,
        ),
        TimeSeriesPanel(
            "How long engines keep callers waiting: p99", "First content, by engine, beside the memory: a load on the host shows in both.",
            (Query(quantile(0.99, "manners_time_to_first_content_seconds", "engine"), "{{engine}}"),), "s", 8,
        ),
        TimeSeriesPanel(
            "Alerts", "Those that fire. docs/runbook.md has a section for each.",
            (Query('sum by (alertname, severity) (ALERTS{alertstate="firing"}) or vector(0)', "{{alertname}} {{severity}}"),), width=8,
        ),
    ),
)  # fmt: skip

ENGINES: Final = Dashboard(
    "manners-engines",
    "Manners: engines",
    "What serves, since when, and on how much memory.",
    (_ENGINES, _PROMOTION, _HOST),
    VARIABLES,
    (PROMOTIONS,),
    {"Voice": "manners-voice"},
)
