"""Overrides: narrow, reasoned, short-lived, and never for what was revoked or tampered with."""

from dataclasses import asdict
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from app.errors.tree import BadField
from app.promotion import overrides
from app.promotion.overrides import VERB, WAIVABLE, WITHDRAWN, Override, new_override
from app.registry.registry import Registry
from app.registry.values import AuditEntry, timestamp

NOW = datetime(2026, 11, 21, 6, 0, 0, tzinfo=UTC)
ENGINE = "sha256:" + "5" * 64
ASKED: dict[str, Any] = {
    "model": "annie", "engine": ENGINE, "waives": ["report_stale"], "reason": "the gate's host is down today",
    "by": "operator", "now": NOW,
}  # fmt: skip


def granted(**changes: Any) -> Override:
    return new_override(**{**ASKED, **changes})


def test_it_waives_what_it_names_for_one_model_and_engine() -> None:
    for asked, waived in (
        ({"model": "annie", "engine": ENGINE}, {"report_stale"}),
        ({"model": "other", "engine": ENGINE}, set()),
        ({"model": "annie", "engine": "sha256:other"}, set()),
    ):
        assert overrides.waived_codes([granted()], **asked) == waived


def test_it_runs_out_within_a_day_and_its_reason_is_one_line() -> None:
    assert granted(reason="the host\n  is down").reason == "the host is down"
    assert granted().expires == "2026-11-22T06:00:00Z"
    hour = timedelta(hours=1)
    seconds = [-1, 0, 3599, 3600]
    active = [granted(hours=1).is_active(NOW + hour * second / 3600) for second in seconds]
    assert active == [False, True, True, False]


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
        *(
            ({"waives": ["report_stale", code]}, f"{code} cannot be waived")
            for code in ("revoked", "report_signature", "mismatch_artefact", "mismatch_running", "nonsense")
        ),
    ],
)
def test_an_override_without_a_narrow_reason_is_refused_in_one_line(changes: Any, why: str) -> None:
    with pytest.raises(BadField, match=why) as caught:
        granted(**changes)
    assert "\n" not in str(caught.value)
    assert not WAIVABLE & {"revoked", "report_signature", "mismatch_artefact", "mismatch_running"}


def entry(verb: str, detail: dict[str, object], at: datetime = NOW) -> AuditEntry:
    return AuditEntry(at=timestamp(at), actor="operator", verb=verb, subject="annie", detail=detail)


def test_the_audit_is_where_overrides_are_kept_and_found_again(tmp_path: Path) -> None:
    one, other = granted(), granted(waives=["verdict_not_pass", "mismatch_suite"], hours=1)
    with Registry(tmp_path / "registry.sqlite") as registry:
        registry.note(entry("annie.promoted", {"any": 1}))
        first, second = (registry.note(entry(VERB, asdict(found))).seq for found in (one, other))
        assert overrides.active(registry, NOW) == {first: one, second: other}
        assert overrides.active(registry, NOW + timedelta(hours=2)) == {first: one}
        assert overrides.active(registry, NOW + timedelta(hours=25)) == {}
        registry.note(entry(WITHDRAWN, {"granted": first}))
        assert overrides.active(registry, NOW) == {second: other}
