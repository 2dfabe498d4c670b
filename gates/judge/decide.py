"""The judgement: a policy and what was measured in, a Decision with its reasons out. Pure.

Named floors are judged first, then rule A (none may), B (enough must), C (no worse than the
baseline) and D (fast enough). Every critical and supporting gate must pass; there is no score to
add up, so speed cannot buy manners. A failure seen is never taken back, and what was not measured
never passes: a missing arm, gate, sample, baseline or control leaves the verdict inconclusive.

    FAIL            a deciding gate failed; enough was seen, even if the run stopped there
    INCONCLUSIVE    something is missing, or open and the extension was not asked yet, or a control
                    did not come out as it had to, so that nothing else can be believed
    PASS            every deciding gate passed, and the gate has shown that it can fail
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from gates.artefact.lineage import Lineage as Lineage
from gates.artefact.lineage import same_lineage as same_lineage
from gates.contracts.verdict import Control, Decision, GateResult, Verdict
from gates.judge.behaviour import judge_floor, judge_rate, judge_zero
from gates.judge.compare import judge_compare, judge_same
from gates.judge.context import Docket, docket
from gates.judge.latency import judge_latency, judge_ratio
from gates.judge.outcomes import Outcomes as Outcomes
from gates.judge.outcomes import Timing as Timing
from gates.judge.words import listed
from gates.policy.values import Policy

_SPEED = ("latency", "ratio")


def decide(policy: Policy, outcomes: Outcomes, controls: Sequence[Control] = ()) -> Decision:
    """Judge a run. `controls` are the negative controls' outcomes; the A/A control is made here.

    Ask it again with the extension's results when `extensions` names gates.

    Raises:
        SamplesError: a result that is there twice, of another suite, or a timing that is none.
    """
    run = docket(policy, outcomes)
    results = tuple(_judged(run))
    same = judge_same(run)
    held = (*((same,) if same else ()), *controls)
    verdict, reasons = _verdict(policy, results, held)
    return Decision(verdict, results, held, reasons)


def extensions(decision: Decision) -> tuple[str, ...]:
    """The gates and metrics whose registered second stage has to be asked; none once something failed.

    It can be asked before A/A and the controls are.
    """
    if decision.verdict is Verdict.FAIL:
        return ()
    # A metric that is asked of every bucket is extended as a whole.
    asking = (r.gate.partition("[")[0] for r in decision.gates if r.extend and r.tier != "advisory")
    return tuple(dict.fromkeys(asking))


def judge_control(name: str, expected: Verdict, decision: Decision, gates: Sequence[str] = ()) -> Control:
    """A run whose outcome is known beforehand, and how it came out.

    With `gates` only those count: a control that has to leak and fails for its speed has shown
    nothing about leaks. It failed if every one of them failed, and passed if none did.
    """
    verdict = _of_gates(decision, gates) if gates else decision.verdict
    failed = [r for r in decision.gates if r.verdict is Verdict.FAIL and (not gates or r.gate in gates)]
    because = tuple(dict.fromkeys(r.gate for r in failed))
    must = f"{name} must {expected.value}" + (f" on {listed(gates)}" if gates else "")
    if verdict is expected:
        evidence = f": {failed[0].gate}: {failed[0].sentence}" if failed else ""
        return Control(name, expected, verdict, because, f"{must}, and did{evidence}")
    passed = [gate for gate in gates if gate not in because]
    where = f" (not {listed(passed)})" if passed and expected is Verdict.FAIL else ""
    return Control(name, expected, verdict, because, f"{must}, and came out as {verdict.value}{where}")


def _of_gates(decision: Decision, gates: Sequence[str]) -> Verdict:
    found = {gate: {r.verdict for r in decision.gates if r.gate == gate} for gate in gates}
    if all(Verdict.FAIL in verdicts for verdicts in found.values()):
        return Verdict.FAIL
    if all(verdicts == {Verdict.PASS} for verdicts in found.values()):
        return Verdict.PASS
    return Verdict.INCONCLUSIVE


# ------------------------------------------------------------------------------------------- rules


def _judged(run: Docket) -> Iterator[GateResult]:
    """Every rule of every gate: floors first, then A to D."""
    gates = run.policy.gates.items()
    for name, gate in gates:
        if gate.floor:
            yield judge_floor(run, name, gate, gate.floor)
    for name, gate in gates:
        if gate.zero:
            yield judge_zero(run, name, gate, gate.zero)
    for name, gate in gates:
        if gate.rate:
            yield judge_rate(run, name, gate, gate.rate)
    for name, gate in gates:
        if gate.compare:
            yield judge_compare(run, name, gate, gate.compare)
    for metric, rule in run.policy.latency.items():
        yield from judge_latency(run, metric, rule)
        if rule.ratio:
            yield judge_ratio(run, metric, rule.ratio)


# ----------------------------------------------------------------------------------------- verdict


def _verdict(
    policy: Policy, results: Sequence[GateResult], controls: Sequence[Control]
) -> tuple[Verdict, tuple[str, ...]]:
    """The verdict and the sentences that decided, the worst first."""
    deciding = [r for r in results if r.tier != "advisory"]
    broken = tuple(f"control {c.sentence}" for c in controls if not c.holds)
    failed = _sentences(deciding, Verdict.FAIL)
    unsure = _sentences(deciding, Verdict.INCONCLUSIVE)
    wanted = policy.wanted_controls
    absent = [n for n, way in wanted.items() if not any(c.name == n and c.expected is way for c in controls)]
    untested = (
        (f"control {listed(absent, 9)} was not run, so nothing shows that this gate can fail",)
        if absent
        else ()
    )
    if broken:
        return Verdict.INCONCLUSIVE, (*broken, *failed, *unsure)
    if failed:
        return Verdict.FAIL, failed
    if not any(r.rule not in _SPEED for r in deciding):
        unsure = (*unsure, "no gate of behaviour was judged")
    if unsure or untested:
        return Verdict.INCONCLUSIVE, (*unsure, *untested)
    passed = len({r.gate for r in deciding})
    return Verdict.PASS, (f"all {len(deciding)} rules of {passed} gates that decide passed",)


def _sentences(results: Sequence[GateResult], verdict: Verdict) -> tuple[str, ...]:
    """Those with this verdict: behaviour before speed, critical before supporting."""
    found = [r for r in results if r.verdict is verdict]
    found.sort(key=lambda r: (r.rule in _SPEED, r.tier != "critical"))
    return tuple(f"{r.gate}: {r.sentence}" for r in found)
