"""The doctor over evidence that was written from the notes: each fault is found by name, and health is silent."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from deploy.doctor.evidence import Evidence
from deploy.doctor.examine import IDS, examine, silent
from deploy.doctor.result import CheckState, worst
from gates.decode import decoder

DATA = Path(__file__).parents[2] / "data" / "doctor"
HEALTHY = "healthy-spark.json"
CASES = sorted(path.name for path in DATA.glob("*.json") if path.name != HEALTHY)


def merged(base: Any, change: Any) -> Any:
    """RFC 7396: null takes a key away."""
    if not isinstance(change, dict):
        return change
    kept = dict(base) if isinstance(base, dict) else {}
    for key, value in change.items():
        kept[key] = None if value is None else merged(kept.get(key), value)
    return {key: value for key, value in kept.items() if value is not None}


def read(name: str) -> tuple[Evidence, dict[str, str]]:
    """A case's evidence, and what is to be found in it."""
    document = json.loads((DATA / name).read_text("utf-8"))
    if "of" in document:
        healthy = json.loads((DATA / document["of"]).read_text("utf-8"))
        return decoder.read(Evidence, merged(healthy, document["change"])), document["finds"]
    return decoder.read(Evidence, document), {}


@pytest.fixture(scope="module")
def healthy() -> Evidence:
    return read(HEALTHY)[0]


def test_a_healthy_spark_gives_no_finding(healthy: Evidence) -> None:
    findings = examine(healthy)
    assert [f for f in findings if f.state is not CheckState.OK] == []
    assert worst(findings) is CheckState.OK
    assert all(f.evidence and not f.fix for f in findings)
    assert silent(findings) == ()


@pytest.mark.parametrize("name", CASES)
def test_a_fault_is_found_by_name_with_its_fix_and_nothing_else_is(name: str) -> None:
    evidence, expected = read(name)
    found = {
        f.id + (f"@{f.engine}" if f.engine else ""): f
        for f in examine(evidence)
        if f.state is not CheckState.OK
    }
    assert {key: str(f.state) for key, f in found.items()} == expected
    assert all(f.evidence and f.fix for f in found.values())


def test_every_check_is_broken_by_some_case() -> None:
    broken = {key.partition("@")[0] for name in CASES for key in read(name)[1]}
    assert set(IDS) - broken == {"host.docker"}


@pytest.mark.parametrize(
    ("part", "field", "id"),
    [
        ("host", "docker", "host.docker"),
        ("host", "toolkit", "host.toolkit"),
        ("host", "swaps", "host.swap"),
        ("host", "memory_total", "host.memory"),
        ("host", "disk_free", "host.disk"),
        ("host", "nvccs", "host.nvcc"),
        ("setting", "filesystem", "config.state"),
    ],
)
def test_a_check_without_its_evidence_says_unknown_and_how_to_get_it(
    healthy: Evidence, part: str, field: str, id: str
) -> None:
    poor = replace(healthy, **{part: replace(getattr(healthy, part), **{field: None})})
    (found,) = [f for f in examine(poor) if f.id == id]
    assert (found.state, bool(found.fix)) == (CheckState.UNKNOWN, True)


def test_what_was_not_collected_of_engines_is_never_ok(healthy: Evidence) -> None:
    blind = replace(healthy, images={}, models={}, host=replace(healthy.host, uid=None))
    said = {f.id: f.state for f in examine(blind) if f.id.partition(".")[0] in ("image", "model")}
    assert {"model.files", "image.architecture", "image.vllm", "image.cuda"} <= said.keys()
    read_from_names = {"image.pinned", "image.nightly"}
    assert {state for id, state in said.items() if id not in read_from_names} == {CheckState.UNKNOWN}


def test_a_model_that_is_not_there_is_a_fault(healthy: Evidence) -> None:
    gone = {name: replace(model, files={}) for name, model in healthy.models.items()}
    (found, *_) = [f for f in examine(replace(healthy, models=gone)) if f.id == "model.files"]
    assert (found.state, bool(found.fix)) == (CheckState.FAIL, True)


def test_where_no_engine_needs_a_gpu_and_there_is_none_the_machine_is_not_judged_as_a_spark() -> None:
    said = {f.id for f in examine(Evidence())}
    assert not said & {"host.gpu", "host.toolkit", "host.docker", "host.swap"}
