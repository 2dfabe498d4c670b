"""What is committed for Prometheus and Grafana, as tests look at it."""

import json
import re
from pathlib import Path
from typing import Any

import yaml

from app.telemetry.metrics import Metrics

ROOT = Path(__file__).parents[2]
PROMETHEUS = ROOT / "deploy" / "prometheus"
RECORDING, ALERTS = (PROMETHEUS / "rules" / name for name in ("recording.yml", "alerts.yml"))
RULE_TESTS = PROMETHEUS / "tests" / "alerts_test.yml"
RUNBOOK = ROOT / "docs" / "runbook.md"
DASHBOARDS: list[dict[str, Any]] = [
    json.loads(path.read_text("utf-8")) for path in sorted((ROOT / "deploy/grafana/dashboards").iterdir())
]
PANELS = [
    (panel["title"], target["expr"])
    for page in DASHBOARDS
    for panel in page["panels"]
    for target in panel.get("targets", ())
]
MARKS: list[dict[str, Any]] = [mark for page in DASHBOARDS for mark in page["annotations"]["list"]]

_OURS = re.compile(r"(?<![\w:])(?:manners|gen_ai)_\w+(?![\w:])")
_RECORDED = re.compile(r"[a-z]+:\w+:\w+")


def rule_tables(path: Path, kind: str) -> list[dict[str, Any]]:
    """Every rule of one kind, `alert` or `record`, as its file has it."""
    groups = yaml.safe_load(path.read_text("utf-8"))["groups"]
    return [rule for group in groups for rule in group["rules"] if kind in rule]


def rules(path: Path, kind: str) -> list[tuple[str, str]]:
    """Name and expression of every rule of one kind."""
    return [(rule[kind], " ".join(rule["expr"].split())) for rule in rule_tables(path, kind)]


def expressions() -> list[tuple[str, str]]:
    """Every expression of every rule, panel, mark and variable, with whose it is."""
    chosen = [one for page in DASHBOARDS for one in page["templating"]["list"] if one["type"] == "query"]
    return [
        *rules(RECORDING, "record"),
        *rules(ALERTS, "alert"),
        *PANELS,
        *((mark["name"], mark["expr"]) for mark in MARKS),
        *((one["name"], one["query"]["query"]) for one in chosen),
    ]


def samples(metrics: Metrics) -> set[str]:
    """The names that a scrape of the gateway can hold."""
    suffixes = {"counter": ("_total",), "gauge": ("",), "histogram": ("_bucket", "_count", "_sum")}
    return {f.name + suffix for f in metrics.registry.collect() for suffix in suffixes[f.type]}


def unknown(expr: str, known: set[str]) -> set[str]:
    """Names in an expression that neither the gateway nor a recording rule gives."""
    recorded = {name for name, _ in rules(RECORDING, "record")}
    return (set(_OURS.findall(expr)) - known) | (set(_RECORDED.findall(expr)) - recorded)
