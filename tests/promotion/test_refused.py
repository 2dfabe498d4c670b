"""What must not come in is refused over HTTP with its code, and everything stays as it was.

The artefacts are the shipped ones and copies of them on this disk; only the reports are written for the test.
"""

import json
import shutil
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from app.config.config import Config, parse
from gates.contracts.verdict import Verdict
from gates.report.statement import ModelIdentity, Pinned, format_time
from tests.app.promotion.stage import FP4, MODELS, Stage, stage, statement, tables
from tests.gates.report import examples
from tests.gates.report.examples import sha

pytestmark = [
    pytest.mark.promotion,
    pytest.mark.engine,
    pytest.mark.timeout(300),
    pytest.mark.asyncio(loop_scope="module"),
]

THIN = MODELS / "annie-nano-thin-ptq"
COPIES = ("renamed", "in-its-manifest", "another-ones")
FAILED = replace(examples.passing().decision, verdict=Verdict.FAIL)


def configured(folder: Path) -> Config:
    """Each of the copies has files of its own, `edited` other arguments than `fp4`."""
    wanted = tables(folder / "state")
    engines, fp4 = wanted["engines"], wanted["engines"]["fp4"]
    for name in COPIES:
        engines[name] = {**fp4, "artefact": str(shutil.copytree(MODELS / FP4, folder / name / FP4))}
    engines["edited"] = {**fp4, "args": [*fp4["args"], "--cache-type-k", "q8_0"]}
    if THIN.exists():
        engines["thin"] = {**fp4, "artefact": str(THIN)}
    return parse(wanted, folder)


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def it(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Stage]:
    """One gateway for all: a refusal changes nothing, which each test checks."""
    folder = tmp_path_factory.mktemp("refused")
    async with stage(folder, configured(folder)) as found:
        yield found


async def stranger(it: Stage) -> tuple[str, str]:
    return "stranger", await it.report("stranger", "small", decision=FAILED)


async def stranger_with_a_pass(it: Stage) -> tuple[str, str]:
    return "stranger", await it.report("stranger", "small")


async def thin(it: Stage) -> tuple[str, str]:
    if not THIN.exists():
        pytest.skip("models/annie-nano-thin-ptq is missing")
    return "thin", await it.report("thin", "small", decision=FAILED)


async def renamed(it: Stage, copy: str = "renamed") -> tuple[str, str]:
    """The bytes are the same; what the report is about names another file."""
    report = await it.report(copy, "small")
    folder = files_of(it, copy)
    (folder / f"{FP4}.gguf").rename(folder / "annie.gguf")
    return copy, report


async def renamed_with_its_manifest(it: Stage) -> tuple[str, str]:
    copy, report = await renamed(it, "in-its-manifest")
    folder = files_of(it, copy)
    manifest = json.loads((folder / "artefact.json").read_text())
    manifest["files"][0]["path"] = "annie.gguf"
    (folder / "artefact.json").write_text(json.dumps(manifest))
    return copy, report


async def another_ones_file(it: Stage) -> tuple[str, str]:
    """The stranger's weights under annie's name."""
    report = await it.report("another-ones", "small")
    folder = files_of(it, "another-ones")
    shutil.copy(next((MODELS / "stranger-nano-q4_k_m").glob("*.gguf")), folder / f"{FP4}.gguf")
    return "another-ones", report


def files_of(it: Stage, copy: str) -> Path:
    folder = it.config.engines[copy].artefact
    assert folder is not None
    return folder


async def argument(it: Stage) -> tuple[str, str]:
    return "edited", await it.report("fp4", "small")


async def old(it: Stage) -> tuple[str, str]:
    return "fp4", await it.report("fp4", "small", created=format_time(datetime.now(UTC) - timedelta(days=8)))


async def suite(it: Stage) -> tuple[str, str]:
    return "fp4", await it.report("fp4", "small", suite=Pinned("easy", None, sha("easy")))


async def base_model(it: Stage) -> tuple[str, str]:
    made = statement(it.config, "fp4", "small").baseline
    other = ModelIdentity("other", "hf-bf16", sha("other"), "somebody/else", {})
    return "fp4", await it.report("fp4", "small", baseline=replace(made, model=other))


REFUSED: dict[str, tuple[Callable[[Stage], Awaitable[tuple[str, str]]], str]] = {
    "the stranger, who failed": (stranger, "verdict_not_pass"),
    "the stranger, whatever her report says": (stranger_with_a_pass, "baseline_lineage"),
    "too thin a quantization": (thin, "verdict_not_pass"),
    "a renamed file": (renamed, "mismatch_artefact"),
    "a renamed file in a changed manifest": (renamed_with_its_manifest, "mismatch_artefact"),
    "another model's file": (another_ones_file, "mismatch_artefact"),
    "a changed argument": (argument, "mismatch_engine"),
    "an old report": (old, "report_stale"),
    "another suite": (suite, "mismatch_suite"),
    "another base model": (base_model, "baseline_lineage"),
}


async def standing(it: Stage) -> list[Any]:
    """Who serves, what runs (and since when), and what was begun."""
    status, engines = await it.get("/admin/status"), await it.get("/admin/engines")
    runs = [(one["name"], one["state"]) for one in engines["engines"]]
    return [status["models"], runs, it.house.gateway.pool.running(), await it.get("/admin/operations")]


@pytest.mark.parametrize("what, code", REFUSED.values(), ids=REFUSED.keys())
async def test_it_is_refused_and_nothing_changes(
    it: Stage, what: Callable[[Stage], Awaitable[tuple[str, str]]], code: str
) -> None:
    engine, report = await what(it)
    before = await standing(it)
    head = (await it.get("/admin/audit?newest=1&limit=1"))["head"]["seq"]
    status, body = await it.wish(engine, report)
    assert (status, body["error"]["code"]) == (409, code), body
    assert await standing(it) == before
    added = (await it.get(f"/admin/audit?after={head}"))["events"]
    assert [event["verb"] for event in added] == ["promote.refused"]
    answer = await it.house.ask()
    assert (answer.status, answer.headers["x-manners-engine"]) == (200, "small")
