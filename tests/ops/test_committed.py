"""Rules, dashboards and runbook agree with the gateway and with each other. Needs no Prometheus."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from app.errors import tree
from app.promotion.state_machine import FINAL
from app.proxy.accounting import outcome_of
from app.telemetry import metrics
from app.telemetry.metrics import VOICE_BUCKETS, Metrics
from deploy.dashboards.__main__ import ALL, FOLDER, path_of, text_of
from deploy.dashboards.panel import WIDTH, Dashboard, PanelRow, TimeSeriesPanel, lay_out
from deploy.dashboards.voice import BUDGET, LEVEL_S, VOICE
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

WORKFLOWS = Path(__file__).parents[2] / ".github" / "workflows"


@pytest.mark.parametrize("dashboard", ALL, ids=lambda d: d.uid)
def test_the_committed_dashboard_is_what_the_builder_writes(dashboard: Dashboard) -> None:
    """Otherwise: python -m deploy.dashboards."""
    assert path_of(dashboard).read_text("utf-8") == text_of(dashboard)


@pytest.mark.parametrize("dashboard", ALL, ids=lambda d: d.uid)
def test_a_grafana_that_imports_it_is_asked_for_its_own_data_source(dashboard: Dashboard) -> None:
    page = dashboard.json()
    (asked,) = page["__inputs"]
    chosen = page["templating"]["list"][0]
    assert (chosen["name"], chosen["type"]) == ("datasource", "datasource")
    assert chosen["current"]["value"] == f"${{{asked['name']}}}"


@pytest.mark.parametrize("dashboard", ALL, ids=lambda d: d.uid)
def test_every_query_goes_to_the_data_source_that_was_chosen(dashboard: Dashboard) -> None:
    named = re.findall(r'"uid": "([^"]*)"', text_of(dashboard))
    assert {uid for uid in named if uid != dashboard.uid} == {"${datasource}"}


def test_nothing_else_is_provisioned() -> None:
    assert set(FOLDER.iterdir()) == {path_of(dashboard) for dashboard in ALL}


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
        assert rule["annotations"]["runbook_url"] == f"docs/runbook.md#{rule['alert'].lower()}", rule["alert"]


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


def test_dashboards_and_rules_speak_of_the_same_level() -> None:
    """The threshold is a bound of a bucket, so the share of late replies is read and not guessed."""
    assert LEVEL_S in VOICE_BUCKETS
    assert set(re.findall(r'le="([^"]+)"', RECORDING.read_text("utf-8"))) == {str(LEVEL_S)}
    burns = [expr for name, expr in rules(ALERTS, "alert") if name == "MannersFirstContentLate"]
    assert {budget for expr in burns for budget in re.findall(r"\* (0\.\d+)", expr)} == {str(BUDGET)}


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


def test_every_panel_says_what_it_shows_and_nobody_can_edit_it() -> None:
    for dashboard in ALL:
        assert dashboard.json()["editable"] is False
        titles = [panel.title for panel in dashboard.panels()]
        assert len(titles) == len(set(titles))
        assert all(panel.about.endswith(".") and panel.queries for panel in dashboard.panels())


def test_no_two_panels_lie_on_each_other() -> None:
    for dashboard in ALL:
        taken: set[tuple[int, int]] = set()
        for panel in dashboard.json()["panels"]:
            at: dict[str, Any] = panel["gridPos"]
            cells = {
                (x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])
            }
            assert not cells & taken, panel["title"]
            assert at["x"] + at["w"] <= WIDTH
            taken |= cells


def test_a_panel_wider_than_the_page_is_an_error() -> None:
    with pytest.raises(ValueError, match="25 columns"):
        lay_out([PanelRow("", (TimeSeriesPanel("Wide", "", (), width=25),))])


def test_the_three_clocks_are_shown_as_heatmaps() -> None:
    heat = [panel.queries[0].expr for panel in VOICE.panels() if panel.kind == "heatmap"]
    assert len(heat) == 3 and all("_bucket" in expr for expr in heat)


def test_every_action_is_pinned_by_its_commit_with_the_tag_beside_it() -> None:
    """A tag can be moved to other code."""
    lines = [line for path in WORKFLOWS.glob("*.yml") for line in path.read_text("utf-8").splitlines()]
    used = [line.partition("uses: ")[2] for line in lines if "uses: " in line]
    assert used and all(re.fullmatch(r"[\w-]+/[\w-]+@[0-9a-f]{40}  # v[0-9.]+", action) for action in used)
