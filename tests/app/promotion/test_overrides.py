"""Overrides: narrow, reasoned, short-lived, and never for what was revoked or tampered with."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from app.promotion import overrides
from app.promotion.overrides import VERB, WAIVABLE, WITHDRAWN, Override, OverrideError, new_override
from app.registry.registry import Registry
from app.registry.values import AuditEntry
from gates.report.statement import format_time

NOW = datetime(2026, 11, 21, 6, 0, 0, tzinfo=UTC)
ENGINE = "sha256:" + "5" * 64
ASKED: dict[str, Any] = {
    "model": "annie", "engine": ENGINE, "waives": ["report_stale"], "reason": "the gate's host is down today",
    "by": "operator", "now": NOW,
}  # fmt: skip


def granted(**changes: Any) -> Override:
    return new_override(**{**ASKED, **changes})


def waived(found: Override, **changes: Any) -> frozenset[str]:
    return overrides.waived_codes([found], **{"model": "annie", "engine": ENGINE, "now": NOW, **changes})


def test_it_waives_what_it_names_for_one_model_and_engine() -> None:
    assert waived(granted()) == {"report_stale"}
    assert waived(granted(), model="other") == waived(granted(), engine="sha256:other") == frozenset()


def test_it_runs_out_within_a_day() -> None:
    assert granted().expires == "2026-11-22T06:00:00Z"
    brief = granted(hours=1)
    assert waived(brief, now=NOW + timedelta(minutes=59)) and not waived(brief, now=NOW + timedelta(hours=1))
    assert not waived(brief, now=NOW - timedelta(seconds=1))


@pytest.mark.parametrize(
    "changes, why",
    [
        ({"waives": []}, "waives: name"),
        ({"reason": "because"}, "reason: "),
        ({"reason": "  " * 50}, "reason: "),
        ({"reason": "x" * 501}, "reason: "),
        ({"hours": 0}, "hours: "),
        ({"hours": 24.1}, "hours: "),
        ({"hours": float("nan")}, "hours: "),
    ],
)
def test_an_override_without_a_narrow_reason_is_refused_in_one_line(changes: Any, why: str) -> None:
    with pytest.raises(OverrideError, match=why) as caught:
        granted(**changes)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "code", ["revoked", "report_signature", "mismatch_artefact", "mismatch_running", "busy", "nonsense"]
)
def test_some_refusals_cannot_be_waived(code: str) -> None:
    with pytest.raises(OverrideError, match=f"{code} cannot be waived"):
        granted(waives=["report_stale", code])
    assert code not in WAIVABLE


def test_a_reason_is_one_line_whatever_was_typed() -> None:
    assert granted(reason="the host\n  is down").reason == "the host is down"


def entry(verb: str, detail: dict[str, object]) -> AuditEntry:
    return AuditEntry(at=format_time(NOW), actor="operator", verb=verb, subject="annie", detail=detail)


def test_the_audit_is_where_overrides_are_kept_and_found_again(tmp_path: Path) -> None:
    one, other = granted(), granted(waives=["verdict_not_pass", "mismatch_suite"], hours=1)
    with Registry(tmp_path / "registry.sqlite") as registry:
        registry.note(entry("annie.promoted", {"any": 1}))
        first, second = (registry.note(entry(VERB, overrides.detail(found))).seq for found in (one, other))
        assert overrides.active_of(registry.events(), NOW) == {first: one, second: other}
        assert overrides.active_of(registry.events(), NOW + timedelta(hours=2)) == {first: one}
        lately = registry.events_of(VERB, WITHDRAWN, since=overrides.since(NOW))
        assert [event.seq for event in lately] == [first, second]
        assert registry.events_of(VERB, since=overrides.since(NOW + timedelta(hours=25))) == ()
        registry.note(entry(WITHDRAWN, {"granted": first}))
        assert overrides.active_of(registry.events(), NOW) == {second: other}
