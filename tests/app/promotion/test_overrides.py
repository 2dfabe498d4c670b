"""Overrides: narrow, reasoned, short-lived, and never for what was revoked or tampered with."""

from dataclasses import asdict, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from app.admin.routes import OverrideBody
from app.api.reading import field_error
from app.promotion import overrides
from app.promotion.overrides import VERB, WITHDRAWN, Override
from app.registry.registry import Registry
from app.registry.values import AuditEntry, timestamp

NOW = datetime(2026, 11, 21, 6, 0, 0, tzinfo=UTC)
ENGINE = "sha256:" + "5" * 64
GRANTED = Override(
    model="annie", engine=ENGINE, waives=("report_stale",), reason="the gate's host is down today", by="operator",
    at="2026-11-21T06:00:00Z", expires="2026-11-22T06:00:00Z",
)  # fmt: skip


def test_it_waives_what_it_names_for_one_model_and_engine() -> None:
    for model, engine, waived in (
        ("annie", ENGINE, {"report_stale"}),
        ("other", ENGINE, set()),
        ("annie", "sha256:other", set()),
    ):
        assert overrides.waived_codes({1: GRANTED}, model, engine) == waived


@pytest.mark.parametrize(
    "changes, param",
    [
        ({"waives": []}, "waives"),
        ({"reason": "because"}, "reason"),
        ({"reason": "  " * 50}, "reason"),
        ({"reason": "x" * 501}, "reason"),
        ({"hours": 0}, "hours"),
        ({"hours": 24.1}, "hours"),
        ({"hours": float("nan")}, "hours"),
        *(
            ({"waives": ["report_stale", code]}, "waives.1")
            for code in ("revoked", "report_signature", "mismatch_artefact", "mismatch_running", "nonsense")
        ),
    ],
)
def test_an_override_without_a_narrow_reason_is_refused(changes: Any, param: str) -> None:
    asked = {"model": "annie", "engine": "large", "waives": ["report_stale"], "reason": "its host is down"}
    OverrideBody.model_validate(asked)
    with pytest.raises(ValidationError) as caught:
        OverrideBody.model_validate(asked | changes)
    assert field_error(caught.value, asked | changes).param == param


def entry(verb: str, detail: dict[str, object], at: datetime = NOW) -> AuditEntry:
    return AuditEntry(at=timestamp(at), actor="operator", verb=verb, subject="annie", detail=detail)


def test_the_audit_is_where_overrides_are_kept_and_found_again(tmp_path: Path) -> None:
    one, other = GRANTED, replace(GRANTED, waives=("mismatch_suite",), expires="2026-11-21T07:00:00Z")
    with Registry(tmp_path / "registry.sqlite") as registry:
        registry.note(entry("annie.promoted", {"any": 1}))
        first, second = (registry.note(entry(VERB, asdict(found))).seq for found in (one, other))
        assert overrides.active(registry, NOW) == {first: one, second: other}
        assert overrides.active(registry, NOW + timedelta(hours=2)) == {first: one}
        assert overrides.active(registry, NOW + timedelta(hours=25)) == {}
        registry.note(entry(WITHDRAWN, {"granted": first}))
        assert overrides.active(registry, NOW) == {second: other}
