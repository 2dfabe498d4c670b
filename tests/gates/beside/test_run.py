"""Asking beside the gates: on the same cases, resumed, within a time; and what a report says of it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from gates.beside import run as beside
from gates.beside.judge import losses, outcomes, tallies
from gates.beside.sets import BesideSet, load_sets
from gates.contracts.case import Case
from gates.contracts.errors import ReportError, RunError, SamplesError
from gates.contracts.sample import BASELINE, CANDIDATE, Sample, TimedRead, TransportFault
from gates.report import document, dsse
from gates.report.labels import beside_cells, beside_notes
from gates.report.markdown import markdown
from gates.report.page import page
from gates.report.statement import BesideResult, Statement, beside_file
from gates.report.verify import verify_report
from gates.run.planned_request import PlannedRequest
from gates.run.sample_store import SampleStore, read_samples
from gates.stats.paired import tango
from tests.gates.report import examples
from tests.gates.test_job import JOB

(ANSWERS,) = load_sets(["answers"])
FEW = ANSWERS.first(6)


def said(ask: PlannedRequest, text: str, **more: Any) -> Sample:
    body = {"choices": [{"message": {"content": text}, "finish_reason": "stop"}]}
    reads = (TimedRead(10, json.dumps(body).encode()),)
    return Sample(ask.key, ask.request, "2026-11-21T00:00:00Z", 200, 5, reads, 20, **more)


def right(case: Case) -> str:
    answer = case.expect["answer"]
    return str(answer["any"][0]) if "any" in answer else f"It is {answer['number']}."


class Engines:
    """Both engines, in name: everything is right but the candidate's reply to the cases in `wrong`. After `lasts` replies
    they are gone, or hang."""

    def __init__(self, wrong: Iterable[str] = (), lasts: int = 1000, hang: bool = False) -> None:
        self.wrong, self.lasts, self.hang = set(wrong), lasts, hang
        self.asked: list[PlannedRequest] = []

    async def run(
        self, asks: Iterable[PlannedRequest], targets: object, store: SampleStore, **_: object
    ) -> None:
        cases = {case.id: case for case in ANSWERS.cases}
        for ask in asks:
            if ask.key in store:
                continue
            if len(self.asked) >= self.lasts:
                if self.hang:
                    await asyncio.Event().wait()
                raise RunError("http://127.0.0.1:1 failed 5 times in a row")
            self.asked.append(ask)
            bad = ask.key.arm == CANDIDATE and ask.key.case in self.wrong
            store.append([said(ask, "No idea." if bad else right(cases[ask.key.case]))])


@pytest.fixture
def ask(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    async def ask(engines: Engines, seconds: float = 60.0, **more: Any) -> BesideResult:
        monkeypatch.setattr(beside, "run", engines.run)
        settings: dict[str, Any] = {"limit": 6, "seconds": seconds, "track": lambda title: None} | more
        (found,) = await beside.ask_beside(JOB, [ANSWERS], tmp_path, {}, **settings)
        return found

    return ask


async def test_both_arms_are_asked_the_same_without_a_system_prompt(ask: Any) -> None:
    engines = Engines()
    await ask(engines)
    by_arm = {arm: [a.request for a in engines.asked if a.key.arm == arm] for arm in (CANDIDATE, BASELINE)}
    assert by_arm[CANDIDATE] == by_arm[BASELINE] and len(by_arm[CANDIDATE]) == 6
    assert all([m["role"] for m in request["messages"]] == ["user"] for request in by_arm[CANDIDATE])
    assert all(request["temperature"] == 0 for request in by_arm[CANDIDATE])


async def test_what_was_lost_is_counted_with_the_gates_own_interval(ask: Any) -> None:
    wrong = [case.id for case in FEW[:2]]
    found = await ask(Engines(wrong))
    assert sum(t.n for t in found.tallies) == 6 and sum(t.worse for t in found.tallies) == 2
    assert [one.case for one in found.losses] == wrong and not found.note
    for tally in found.tallies:
        assert tally.baseline - tally.candidate == tally.worse - tally.better
        low, high = tango(tally.worse, tally.better, tally.n)
        assert (tally.low, tally.high) == (round(-high, 4), round(-low, 4))


async def test_nothing_is_asked_twice_and_a_larger_part_goes_on(ask: Any, tmp_path: Path) -> None:
    """After engines that were gone in the middle; that is said, and no error."""
    first = await ask(Engines(lasts=5))
    assert "stopped: http://127.0.0.1:1 failed" in first.note and sum(t.n for t in first.tallies) == 2
    engines = Engines()
    second = await ask(engines, limit=8)
    assert len(engines.asked) == 16 - 5 and not second.note and second.cases == 8
    keys = [sample.key for sample in read_samples(tmp_path / beside_file("answers"))]
    assert len(keys) == len(set(keys)) == 16


async def test_when_the_time_is_up_the_rest_is_not_asked(ask: Any) -> None:
    found = await ask(Engines(lasts=4, hang=True), seconds=0.05)
    assert "the time was up" in found.note and sum(t.n for t in found.tallies) == 2
    assert f"answers: 2 of 6 cases have an answer of both ({found.note})" in beside_notes(found)


async def test_samples_of_another_set_are_refused(ask: Any, tmp_path: Path) -> None:
    with SampleStore(tmp_path / beside_file("answers"), suite="sha256:" + "0" * 64):
        pass
    await ask(Engines())
    changed = BesideSet("answers", "ours", ANSWERS.sampling, ANSWERS.cases, 0, "sha256:" + "1" * 64)
    with pytest.raises(SamplesError, match="give the run a folder of its own"):
        await beside.ask_beside(JOB, [changed], tmp_path, {}, limit=6, seconds=60, track=lambda title: None)


def test_a_sample_that_was_lost_on_the_way_leaves_its_pair_out() -> None:
    case = FEW[0]
    sample = said(replace_arm(case, CANDIDATE), right(case))
    lost = said(replace_arm(case, BASELINE), "", fault=TransportFault("timeout", "60 s"))
    found = outcomes([case], [sample, lost])
    assert tallies([case], found) == () and losses(found) == ()


def replace_arm(case: Case, arm: str) -> PlannedRequest:
    from gates.run.planned_request import planned_request
    from gates.run.target import Arm

    return planned_request(ANSWERS.digest, Arm(arm, JOB.candidate.target), case, ANSWERS.sampling, 0)


# -------------------------------------------------------------------------------------------- the report

RESULT = BesideResult(
    name="bfcl",
    source="BFCL_v4_parallel.json",
    digest="sha256:" + "1" * 64,
    cases=40,
    skipped=1,
    samples="sha256:" + "2" * 64,
    tallies=tallies([], {}),
    losses=(),
    note="",
)


def with_beside(statement: Statement, samples: str = RESULT.samples) -> Statement:
    from gates.report.statement import BesideLoss, BesideTally

    tally = BesideTally("parallel", 40, 30, 33, 5, 2, -0.2104, 0.0651)
    result = replace(
        RESULT, tallies=(tally,), losses=(BesideLoss("parallel_1", "<b>wrong</b>"),), samples=samples
    )
    return replace(statement, beside=(result,))


def test_a_report_without_it_has_the_text_that_it_always_had() -> None:
    statement = examples.passing()
    assert b'"beside"' not in document.render(statement)
    assert document.parse(document.render(statement)).beside == ()


def test_it_is_signed_shown_and_decides_nothing() -> None:
    before, after = examples.passing(), with_beside(examples.passing())
    again = document.parse(document.render(after))
    assert again == after and again.decision == before.decision
    row = ("bfcl: parallel", "30 of 40", "33 of 40", "-7.5 points (-22 to 6.6)")
    (result,) = after.beside
    assert beside_cells(result, result.tallies[0]) == row
    short, shown = markdown(after), page(after)
    assert "| bfcl: parallel | 30 of 40 | 33 of 40 |" in short and "1 line cannot be judged here" in short
    assert "Beside the gates" in shown and "&lt;b&gt;wrong&lt;/b&gt;" in shown and "<b>wrong</b>" not in shown
    assert "eside the gates" not in page(before) + markdown(before)


def test_changed_samples_are_found_and_missing_ones_are_said(tmp_path: Path) -> None:
    """Of the sets, beside those of the gates."""
    import hashlib

    data = b'{"schema":"x"}\n'
    statement = with_beside(examples.passing(), f"sha256:{hashlib.sha256(data).hexdigest()}")
    report = dsse.render(dsse.sign(document.render(statement), examples.KEY))
    trusted = {dsse.key_id(examples.KEY.public_key()): examples.KEY.public_key()}
    arms = {
        "candidate": examples.all_cases(examples.CANDIDATE_FEW),
        "baseline": examples.all_cases(examples.BASELINE_FEW),
    }
    samples = tmp_path / "samples.jsonl"
    samples.write_bytes(b"".join(examples.sample_lines(arms)))

    def verified() -> Any:
        return verify_report(report, trusted=trusted, now=examples.WHEN + timedelta(days=1), samples=samples)

    assert "beside the gates, bfcl: its samples are not here" in verified().unchecked
    (tmp_path / "also-bfcl.jsonl").write_bytes(data)
    assert "beside the gates, bfcl: its samples as signed" in verified().checked
    (tmp_path / "also-bfcl.jsonl").write_bytes(data.upper())
    with pytest.raises(ReportError) as refused:
        verified()
    assert refused.value.code == "report_signature"
