"""Rules, dashboards and runbook agree with the gateway and with each other. Needs no Prometheus."""

import re

import pytest
import yaml

from app.telemetry.metrics import VOICE_BUCKETS, Metrics
from tests.ops.facts import (
    ALERTS,
    RECORDING,
    RULE_TESTS,
    RUNBOOK,
    expressions,
    rule_tables,
    rules,
    samples,
    unknown,
)


@pytest.mark.parametrize("name, expr", expressions())
def test_every_metric_that_is_asked_for_exists(name: str, expr: str) -> None:
    """A panel on a name that was changed reads "No data", and an alert on it never fires."""
    assert not unknown(expr, samples(Metrics())), name


def test_every_alert_links_to_its_section_and_every_section_has_its_alert() -> None:
    sections = re.findall(r"^## (\S+)$", RUNBOOK.read_text("utf-8"), re.MULTILINE)
    links = {rule["alert"]: rule["annotations"]["runbook_url"] for rule in rule_tables(ALERTS, "alert")}
    assert links == {name: f"http://127.0.0.1:8081/admin/runbook#{name.lower()}" for name in sections}
    assert len(links) == len(sections)


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
