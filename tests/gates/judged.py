"""Suites, policies and results for the judge's tests: everything good, but for what a test names."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from typing import Any

from gates.artefact.artefact import Lineage
from gates.contracts.case import Case, Sampling, Suite
from gates.contracts.verdict import CaseResult, ControlResult, Outcome, Verdict
from gates.judge.context import ArmName, Measurements, Timing
from gates.policy.policy import (
    CompareRule,
    FloorRule,
    GateRules,
    LatencyRule,
    NegativeControl,
    Policy,
    RateRule,
    RatioRule,
    RunSettings,
    SelfComparison,
    TemperatureRepeats,
    ZeroRule,
)

RUN = RunSettings(repeats=(TemperatureRepeats(0.0, 1), TemperatureRepeats(0.7, 3)))
KIN = Lineage(True, "both come from sha256:aa")
STRANGER = NegativeControl("stranger", ("leak",))
HELD = ControlResult("stranger", Verdict.FAIL, Verdict.FAIL, ("leak",), "stranger must fail on leak, and did")

SIZES: Mapping[str, tuple[int, int, int]] = {"leak": (165, 115, 25), "tools": (150, 150, 10)}
"""Cases of stage 1, of stage 2, and how many of stage 1 are named."""

LEAK = GateRules("critical", floor=FloorRule(25, 25), zero=ZeroRule(165, 115))
TOOLS = GateRules(
    "critical",
    "greedy",
    floor=FloorRule(10, 6),
    rate=RateRule(0.60, 150, 300),
    compare=CompareRule(0.05, 150, 300),
)
FAST = LatencyRule("critical", 120.0, 100, 200, ratio=RatioRule(0.10, blocks=8, pairs=80, resamples=1000))


def policy(**changes: Any) -> Policy:
    """Leak and tools with the shipped sizes, TTFT, A/A and one negative control."""
    whole = Policy(
        name="test",
        version=1,
        run=RUN,
        gates={"leak": LEAK, "tools": TOOLS},
        latency={"ttft": FAST},
        same=SelfComparison(100),
        controls=(STRANGER,),
    )
    return replace(whole, **changes)


def suite(sizes: Mapping[str, tuple[int, int, int]] = SIZES) -> Suite:
    """Cases of their own for every gate: leak-0, leak-1, ...; the first ones are the named."""
    cases = []
    for gate, (first, second, named) in sizes.items():
        for i in range(first + second):
            said = ({"role": "user", "content": f"{gate} {i}"},)
            marks = (gate,) if i < named else ()
            cases.append(Case(f"{gate}-{i}", (gate,), said, named=marks, stage=1 if i < first else 2))
    return Suite("test", 1, "", Sampling(), tuple(cases), "sha256:00")


def results(
    of: Suite,
    bad: Collection[str] = (),
    lost: Collection[str] = (),
    missing: Collection[str] = (),
    stages: Collection[int] = (1,),
) -> tuple[CaseResult, ...]:
    """A result for every case of the stages, good unless named otherwise."""
    found = []
    for case in of.cases:
        outcome: Outcome = "bad" if case.id in bad else "lost" if case.id in lost else "ok"
        if case.stage in stages and case.id not in missing:
            found += [CaseResult(case.id, g, outcome, case.stage, g in case.named) for g in case.gates]
    return tuple(found)


def timings(
    ours: float | None = 90.0,
    theirs: float | None = 300.0,
    blocks: int = 8,
    prompts: int = 13,
    stage: int = 1,
    metric: str = "ttft",
) -> tuple[Timing, ...]:
    """Every prompt in every block, on both arms."""
    arms: tuple[tuple[ArmName, float | None], ...] = (("candidate", ours), ("baseline", theirs))
    return tuple(
        Timing(metric, arm, f"p{j}", value, "0.5k", block + 100 * (stage - 1), 0, stage)
        for block in range(blocks)
        for j in range(prompts)
        for arm, value in arms
    )


def outcomes(
    bad: Collection[str] = (),
    baseline_bad: Collection[str] = (),
    again_bad: Collection[str] | None = None,
    *,
    lost: Collection[str] = (),
    missing: Collection[str] = (),
    stages: Collection[int] = (1,),
    of: Suite | None = None,
    **changes: Any,
) -> Measurements:
    """A run in which all went well, but for what is named."""
    whole = of or suite()
    base = results(whole, baseline_bad, stages=stages)
    again = base if again_bad is None else results(whole, again_bad)
    ours = results(whole, bad, lost, missing, stages)
    return replace(Measurements(whole, ours, base, again, timings(), KIN), **changes)


def some(gate: str, numbers: Iterable[int]) -> set[str]:
    """The ids of a gate's cases by their numbers."""
    return {f"{gate}-{i}" for i in numbers}
