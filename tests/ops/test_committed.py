"""Rules, dashboards and runbook agree with the gateway and with each other. Needs no Prometheus."""

import re
from pathlib import Path

import pytest
import yaml

from app.errors import tree
from app.promotion.state_machine import FINAL
from app.proxy.accounting import outcome_of
from app.telemetry import metrics
from app.telemetry.metrics import VOICE_BUCKETS, Metrics
from tests.ops.facts import (
    ALERTS,
    MARKS,
    PANELS,
    RECORDING,
    RULE_TESTS,
    RUNBOOK,
    expressions,
    rule_tables,
    rules,
    samples,
    unknown,
)

WORKFLOWS = Path(__file__).parents[2] / ".github" / "workflows"


@pytest.mark.parametrize("name, expr", expressions())
def test_every_metric_that_is_asked_for_exists(name: str, expr: str) -> None:
    """A panel on a name that was changed reads "No data", and an alert on it never fires."""
    assert not unknown(expr, samples(Metrics())), name


def test_a_metric_that_is_renamed_is_missed(monkeypatch: pytest.MonkeyPatch) -> None:
    renamed = {name.replace("breach", "breaches"): row for name, row in metrics.COUNTERS.items()}
    monkeypatch.setattr(metrics, "COUNTERS", renamed)

    missed = {name for name, expr in expressions() if unknown(expr, samples(Metrics()))}
    assert missed == {"detector:manners_breach:increase15m", "Bad manners a minute, by detector"}


def test_a_recorded_series_that_is_renamed_is_missed() -> None:
    assert unknown("model:manners_first_content_late:ratio_rate4d > 1", samples(Metrics()))


def test_every_alert_has_its_section_and_every_section_its_alert() -> None:
    sections = re.findall(r"^## (\S+)$", RUNBOOK.read_text("utf-8"), re.MULTILINE)
    assert len(sections) == len(set(sections))
    assert set(sections) == {name for name, _ in rules(ALERTS, "alert")}


def test_every_alert_links_to_its_section() -> None:
    for rule in rule_tables(ALERTS, "alert"):
        assert (
            rule["annotations"]["runbook_url"]
            == f"http://127.0.0.1:8081/admin/runbook#{rule['alert'].lower()}"
        )


def test_every_alert_is_seen_to_fire_and_to_stay_silent() -> None:
    """By the rule tests, which `make test-ops` runs and breaks."""
    cases = [
        (case["alertname"], bool(case["exp_alerts"]))
        for test in yaml.safe_load(RULE_TESTS.read_text("utf-8"))["tests"]
        for case in test.get("alert_rule_test", ())
    ]
    alerts = {name for name, _ in rules(ALERTS, "alert")}
    assert {name for name, fires in cases if fires} == alerts
    assert {name for name, fires in cases if not fires} == alerts


def test_rules_speak_of_one_level_that_is_a_bound_of_a_bucket() -> None:
    """So that the share of late replies is read and not guessed."""
    (level,) = set(re.findall(r'le="([^"]+)"', RECORDING.read_text("utf-8")))
    assert float(level) in VOICE_BUCKETS
    burns = [expr for name, expr in rules(ALERTS, "alert") if name == "MannersFirstContentLate"]
    assert {budget for expr in burns for budget in re.findall(r"\* (0\.\d+)", expr)} == {"0.05"}


def test_rules_name_results_and_outcomes_that_there_are() -> None:
    """A label's value that nobody writes any more is as silent as a metric's name."""
    ends = (None, tree.Busy("x"), tree.EngineDown("x"), tree.EngineTimeout("x"), RuntimeError())
    results = {
        "manners_promotions": {phase.value for phase in FINAL},
        "manners_reloads": {
            "ok",
            "configuration_invalid",
            "restart_required",
            "not_started",
            "state_unavailable",
        },
        "manners_retries": {"heard", "failed"},
    }
    asked = " ".join(expr for _, expr in [*rules(RECORDING, "record"), *rules(ALERTS, "alert")])
    found = re.findall(r'([\w:]+)\{(?:[^}]*,\s*)?(result|outcome)=~?"([^"]+)"', asked)
    for metric, label, values in found:
        (known,) = (
            [{outcome_of(end) for end in ends}]
            if label == "outcome"
            else [values for name, values in results.items() if name in metric]
        )
        assert {*values.split("|")} <= known, metric
    assert {label for _, label, _ in found} == {"result", "outcome"}


@pytest.mark.parametrize("name, expr", [*PANELS, *((mark["name"], mark["expr"]) for mark in MARKS)])
def test_every_panel_shows_the_chosen_instance(name: str, expr: str) -> None:
    """But for what a rule has recorded of all of them."""
    asked = re.findall(r"(?<![\w:])(?:manners|gen_ai)_\w+(\{[^}]*\})?", expr)
    assert all('instance=~"$instance"' in selector for selector in asked)
