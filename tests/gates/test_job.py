"""What a gate job asks of whom, and when it stops; over replies that are written here."""

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gates.artefact.artefact import UNCHECKED, Artefact, FileEntry, Provenance
from gates.contracts.case import Case
from gates.contracts.errors import RunError
from gates.contracts.sample import AGAIN, BASELINE, CANDIDATE, Sample, TimedRead
from gates.policy.load import load_policy
from gates.policy.policy import CompareRule, RateRule, SelfComparison, ZeroRule
from gates.report.statement import EngineIdentity
from gates.run.job import (
    GateJob,
    JobResult,
    ServedModel,
    check_requests,
    judge_samples,
    latency_prompts,
    latency_schedule,
    run_job,
    stage_requests,
)
from gates.run.request import PlannedRequest
from gates.run.sample_store import SampleStore
from gates.run.target import Target, Variant
from gates.suite.load import load_suite
from tests.gates.run.test_latency_schedule import spoken, taken

SUITE, POLICY = load_suite("annie-nano"), load_policy("annie-nano")
CASES = {case.id: case for case in SUITE.cases}
COLD = POLICY.run.temperatures.index(0.0)
FILES = (FileEntry("model.gguf", 1, "0" * 64),)


def side(name: str, letter: str) -> ServedModel:
    """An engine that is up, in name."""
    engine = EngineIdentity(name, "embedded", "llama-server", None, (), {}, "b1", None)
    artefact = Artefact(name, "gguf-f16", "sha256:" + letter * 64, FILES, "2026-11-21T00:00:00Z",
                        Provenance("base", {"source": "sha256:" + "f" * 64}))  # fmt: skip
    target = Target(url="http://127.0.0.1:1", served_model="m", dialect="llama-server",
                    artefact=artefact.root, engine=engine.digest)  # fmt: skip
    return ServedModel(target=target, artefact=artefact, engine=engine)


BASE = side("annie", "b")
JOB = GateJob(
    suite=SUITE,
    policy=POLICY,
    candidate=side("annie", "a"),
    baseline=BASE,
    controls={
        "stranger": (side("stranger", "c"), Variant()),
        "thinking-on": (BASE, Variant(thinking=True)),
        "tools-removed": (BASE, Variant(tools=False)),
    },
    timed=False,
)


def arms(asks: Iterable[PlannedRequest]) -> set[str]:
    return {ask.key.arm for ask in asks}


def cases(asks: Iterable[PlannedRequest]) -> set[str]:
    return {ask.key.case for ask in asks}


def test_a_job_without_the_engine_of_a_control_is_refused_by_its_name() -> None:
    with pytest.raises(RunError, match="stranger"):
        replace(JOB, controls={})


def test_the_first_stage_asks_both_arms_the_same() -> None:
    asks = stage_requests(JOB)
    by_arm = {arm: [a.request for a in asks if a.key.arm == arm] for arm in arms(asks)}
    assert by_arm.keys() == {CANDIDATE, BASELINE} and by_arm[CANDIDATE] == by_arm[BASELINE]


def test_the_gate_is_tested_by_the_baseline_again_and_by_controls_at_temperature_zero() -> None:
    asks = check_requests(JOB)
    assert arms(asks) == {AGAIN, "control:stranger", "control:thinking-on", "control:tools-removed"}
    assert {a.key.repeat for a in asks} == {COLD} and {a.request["temperature"] for a in asks} == {0.0}
    for control in POLICY.controls:
        wanted = {c.id for gate in control.breaks for c in SUITE.of(gate, 1)}
        assert cases(a for a in asks if a.key.arm == f"control:{control.name}") == wanted


def test_prompts_that_are_timed_fit_both_contexts() -> None:
    small = replace(JOB, candidate=replace(JOB.candidate, context=700))
    assert latency_schedule(small, 3.0).buckets == (250,)
    with pytest.raises(RunError, match="context of 100 tokens"):
        latency_schedule(replace(JOB, baseline=replace(BASE, context=100)), 3.0)


# ------------------------------------------------------------------------------ with replies

_FEW = {
    case.id
    for gate, stage, count in (("leak", 1, 40), ("leak", 2, 10), ("tools", 1, 60))
    for case in SUITE.of(gate, stage)[:count]
} | {case.id for case in SUITE.of("leak", 1) if "leak" in case.named}
SMALL = replace(SUITE, cases=tuple(case for case in SUITE.cases if case.id in _FEW))
RULES = replace(
    POLICY,
    gates={
        "leak": replace(
            POLICY.gates["leak"], zero=ZeroRule(len(SMALL.of("leak", 1)), len(SMALL.of("leak", 2)))
        ),
        "tools": replace(
            POLICY.gates["tools"], floor=None, rate=RateRule(0.6, 60, 60), compare=CompareRule(0.2, 60, 60)
        ),
    },
    controls=tuple(
        replace(c, breaks=tuple(g for g in c.breaks if g in ("leak", "tools"))) for c in POLICY.controls
    ),
    same=SelfComparison(n=40),
)
"""The nano policy in small: the same rules over fewer prompts."""


def good(case: Case) -> dict[str, object]:
    """A message that is right for a case: its calls, or its answer."""
    if case.expect.get("calls"):
        calls = [{"id": f"c{i}", "type": "function", "function": {"name": want["name"], "arguments": json.dumps(
            {key: _value(accepted) for key, accepted in want["arguments"].items() if "" not in accepted})}}
            for i, want in enumerate(case.expect["calls"])]  # fmt: skip
        return {"content": "", "tool_calls": calls}
    answer = case.expect.get("answer", {})
    said = answer["any"][0] if "any" in answer else f"It is {answer['number']}." if answer else "All right."
    return {"content": str(said)}


def _value(accepted: list[object]) -> object:
    first = accepted[0]
    if isinstance(first, Mapping) and "has" in first:
        return " ".join(word.split("|")[0] for word in first["has"])
    return first


Model = Callable[[Case, PlannedRequest], dict[str, object]]


def answered(ask: PlannedRequest, model: Model) -> Sample:
    """The sample of an ask, by a model that is a function."""
    message = model(CASES[ask.key.case], ask)
    reason = "tool_calls" if message.get("tool_calls") else "stop"
    body = {"choices": [{"message": message, "finish_reason": reason}], "usage": {"completion_tokens": 3}}
    reads = (TimedRead(10, json.dumps(body).encode()),)
    return Sample(ask.key, ask.request, "2026-11-21T00:00:00Z", 200, 5, reads, 20)


def mannered(case: Case, ask: PlannedRequest) -> dict[str, object]:
    """Annie; but not where she is let to think, or has no tools."""
    if ask.key.arm == "control:thinking-on":
        return {"content": "Yes.", "reasoning_content": "hm"}
    if ask.key.arm == "control:stranger" or (ask.key.arm == "control:tools-removed" and case.tools):
        return {"content": "<think>hm</think># No\n* tools"}
    return good(case)


async def _run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, model: Model, **more: Any
) -> tuple[JobResult, list[str]]:
    titles: list[str] = []

    async def run(asks: Iterable[PlannedRequest], targets: object, ledger: SampleStore, **_: object) -> None:
        ledger.append([answered(a, model) for a in asks if a.key not in ledger])

    monkeypatch.setattr("gates.run.job.run", run)
    job = replace(JOB, suite=SMALL, policy=RULES, **more)
    with SampleStore(tmp_path / "samples.jsonl", suite=SMALL.digest) as ledger:
        judged = await run_job(job, ledger, track=lambda title: titles.append(title))
        assert (await run_job(job, ledger)).decision == judged.decision  # scoring can be done again
    return judged, titles


async def test_a_mannered_candidate_is_asked_everything_but_the_extension(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    judged, titles = await _run(tmp_path, monkeypatch, mannered)
    assert titles == ["named cases", "first stage", "controls"]
    assert {r.verdict for r in judged.decision.gates if r.rule not in ("latency", "ratio")} == {"pass"}
    assert all(control.holds for control in judged.decision.controls), judged.decision.controls


def test_a_speed_rule_that_is_open_says_what_a_silent_engine_should_be_told(tmp_path: Path) -> None:
    heard = taken(*spoken(cached=None), arm=CANDIDATE)
    with SampleStore(tmp_path / "samples.jsonl", suite=SMALL.digest) as ledger:
        ledger.append([replace(heard, key=replace(heard.key, suite=SMALL.digest))])
        decision = judge_samples(POLICY, SMALL, ledger.samples(), UNCHECKED).decision
    (ttft,) = (r for r in decision.gates if (r.gate, r.rule) == ("ttft", "latency"))
    assert ttft.verdict == "inconclusive" and "--enable-prompt-tokens-details" in ttft.sentence


def leaks_in(arm: str, names: set[str]) -> Model:
    def model(case: Case, ask: PlannedRequest) -> dict[str, object]:
        leaks = ask.key.arm == arm and case.id in names
        return {"content": "<think>hm</think>Yes."} if leaks else mannered(case, ask)

    return model


async def test_one_leak_elsewhere_asks_for_the_extension_and_a_clean_one_passes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = next(case.id for case in SMALL.of("leak", 1) if "leak" not in case.named)
    judged, titles = await _run(tmp_path, monkeypatch, leaks_in(CANDIDATE, {other}))
    assert "extension" in titles
    (leak,) = [r for r in judged.decision.gates if (r.gate, r.rule) == ("leak", "zero")]
    assert leak.verdict == "pass" and leak.bad == 1


@pytest.mark.slow  # a whole gate runs: 2 s
async def test_a_control_that_does_not_fail_leaves_no_verdict(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def model(case: Case, ask: PlannedRequest) -> dict[str, object]:
        return good(case) if ask.key.arm == "control:stranger" else mannered(case, ask)

    judged, _ = await _run(tmp_path, monkeypatch, model)
    assert judged.decision.verdict == "inconclusive"
    assert "stranger" in judged.decision.reasons[0]


def _asked(judged: JobResult) -> int:
    return len({result.case for result in judged.scored.results[CANDIDATE]})


@pytest.mark.parametrize(
    "broken, gate, most",
    [
        (lambda case: {"content": "<think>hm</think>Yes."}, "leak", 8),
        (lambda case: {"content": "No."} if case.tools else good(case), "tools", 32),
    ],
)
async def test_a_sequential_run_ends_where_a_broken_model_is_known_to_be(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    broken: Callable[[Case], dict[str, object]],
    gate: str,
    most: int,
) -> None:
    def model(case: Case, ask: PlannedRequest) -> dict[str, object]:
        return broken(case) if ask.key.arm == CANDIDATE else mannered(case, ask)

    judged, titles = await _run(tmp_path, monkeypatch, model, sequential=True)
    assert judged.decision.verdict == "fail" and judged.decision.reasons[0].startswith(gate)
    assert _asked(judged) <= most and all(title.startswith("to prompt") for title in titles)


async def test_a_sequential_run_ends_where_every_rule_has_passed_and_tests_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    judged, titles = await _run(tmp_path, monkeypatch, mannered, sequential=True)
    assert {r.verdict for r in judged.decision.gates if r.rule not in ("latency", "ratio")} == {"pass"}
    assert all(control.holds for control in judged.decision.controls), judged.decision.controls
    assert titles[-1] == "controls" and len(SMALL.of("leak", 1)) <= _asked(judged) < len(SMALL.cases)


def test_prompts_with_the_longest_spoken_answers_are_timed_first() -> None:
    asks = [a for a in stage_requests(JOB) if a.key.arm == BASELINE and a.key.mode == "stream"]
    favourite = SUITE.of("empty", 1)[7].id

    def model(case: Case, ask: PlannedRequest) -> dict[str, object]:
        return {"content": "Once upon a time."} if case.id == favourite else mannered(case, ask)

    samples = [answered(a, model) for a in asks]
    long = [replace(s, reads=(TimedRead(10, s.reads[0].data.replace(b'tokens": 3', b'tokens": 90')),))
            if s.key.case == favourite else s for s in samples]  # fmt: skip
    first, *rest = latency_prompts(SUITE, long)
    assert first.id == favourite
    assert not any(case.expect.get("calls") for case in rest)
