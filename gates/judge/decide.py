"""The judgement: takes a policy and the measurements, returns a Decision with its reasons. Pure.

Every critical and supporting rule must pass; there is no overall score, so speed cannot make up for behaviour. FAIL: a deciding
rule failed, even if the run stopped there. INCONCLUSIVE: something is missing or undecided, or a control did not come out as
expected. PASS: every deciding rule passed, and the controls show that the gate can fail.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final

from gates.contracts.verdict import ControlResult, Decision, GateResult, Rule, Verdict
from gates.detect.catalogue import GATES
from gates.judge.behaviour import judge_floor, judge_rate, judge_zero
from gates.judge.compare import judge_compare, judge_self_comparison
from gates.judge.context import JudgingContext, Measurements
from gates.judge.formatting import join_names
from gates.judge.latency import judge_latency, judge_ratio
from gates.policy.policy import Policy, SelfComparison

_SPEED = ("latency", "ratio")
_JUDGES: Final[Mapping[str, Callable[..., GateResult]]] = {
    "floor": judge_floor, "zero": judge_zero, "rate": judge_rate, "compare": judge_compare
}  # fmt: skip


def decide(policy: Policy, measurements: Measurements, controls: Sequence[ControlResult] = ()) -> Decision:
    """Judge a run, with the results of its negative controls; if `extensions` then names gates, ask their extension and judge again."""
    context = JudgingContext(policy, measurements)
    results = tuple(_judged(context))
    same = judge_self_comparison(context)
    held = (*((same,) if same else ()), *controls)
    verdict, reasons = _verdict(policy, results, held)
    return Decision(verdict, results, held, reasons)


def extensions(decision: Decision) -> tuple[str, ...]:
    """The gates and metrics whose extension has to be asked; none after a failure."""
    if decision.verdict is Verdict.FAIL:
        return ()
    # A metric with several prompt lengths is extended as a whole.
    asking = (r.gate.partition("[")[0] for r in decision.gates if r.extend and r.tier != "advisory")
    return tuple(dict.fromkeys(asking))


def judge_control(name: str, decision: Decision, gates: Sequence[str]) -> ControlResult:
    """Whether a negative control fails on each of these gates: one that has to leak, and fails for its speed, shows nothing."""
    verdicts = [{r.verdict for r in decision.gates if r.gate == gate} for gate in gates]
    failed = [r for r in decision.gates if r.verdict is Verdict.FAIL and r.gate in gates]
    because = tuple(dict.fromkeys(r.gate for r in failed))
    must = f"{name} must fail on {join_names(gates)}"
    if all(Verdict.FAIL in found for found in verdicts):
        said = f"{must}, and did: {failed[0].gate}: {failed[0].sentence}"
        return ControlResult(name, Verdict.FAIL, Verdict.FAIL, because, said)
    passed = all(found == {Verdict.PASS} for found in verdicts)
    verdict = Verdict.PASS if passed else Verdict.INCONCLUSIVE
    where = join_names([gate for gate in gates if gate not in because])
    return ControlResult(
        name, Verdict.FAIL, verdict, because, f"{must}, and gave {verdict.value} (not {where})"
    )


def _judged(context: JudgingContext) -> Iterator[GateResult]:
    """The result of every rule that a report must hold, in that order."""
    policy = context.policy
    for name, rule, _ in policy.required_results:
        if rule == "latency":
            yield judge_latency(context, name, policy.latency[name])
        elif rule == "ratio" and (ratio := policy.latency[name].ratio):
            yield judge_ratio(context, name, ratio)
        else:
            gate = policy.gates[name]
            yield _JUDGES[rule](context, name, gate, getattr(gate, rule))
            if rule == ("rate" if gate.rate else "compare"):
                yield from _calls_and_none(context, name, rule)


def _calls_and_none(context: JudgingContext, name: str, rule: Rule) -> Iterator[GateResult]:
    """Prompts that want a call, and those that want none, apart and advisory: a model that never calls is right about all of the second."""
    whole = context.measurements
    cases = [
        case for case in whole.suite.of(name) if "calls" in case.expect and GATES[name].expects == "calls"
    ]
    gate = replace(context.policy.gates[name], tier="advisory")
    for part, calls in (("calls", True), ("no call", False)):
        of = tuple(case for case in cases if bool(case.expect["calls"]) is calls)
        if 0 < len(of) < len(cases):
            alone = replace(
                context,
                policy=replace(context.policy, same=SelfComparison(1, 1.0)),
                measurements=replace(whole, suite=replace(whole.suite, cases=of)),
            )
            first = max(1, sum(case.stage == 1 for case in of))
            found = _JUDGES[rule](alone, name, gate, replace(getattr(gate, rule), n=first, n_max=len(of)))
            yield replace(found, gate=f"{name}[{part}]", extend=False)


def _verdict(
    policy: Policy, results: Sequence[GateResult], controls: Sequence[ControlResult]
) -> tuple[Verdict, tuple[str, ...]]:
    """The verdict and the sentences that decided, the worst first."""
    deciding = [r for r in results if r.tier != "advisory"]
    broken = tuple(f"control {c.sentence}" for c in controls if not c.holds)
    failed = _sentences(deciding, Verdict.FAIL)
    unsure = _sentences(deciding, Verdict.INCONCLUSIVE)
    wanted = policy.required_controls
    absent = [n for n, way in wanted.items() if not any(c.name == n and c.expected is way for c in controls)]
    if broken:
        return Verdict.INCONCLUSIVE, (*broken, *failed, *unsure)
    if failed:
        return Verdict.FAIL, failed
    if not any(r.rule not in _SPEED for r in deciding):
        unsure = (*unsure, "no gate of behaviour was judged")
    if absent:
        names = join_names(absent, 9)
        unsure = (*unsure, f"control {names} was not run: nothing shows that this gate can fail")
    if unsure:
        return Verdict.INCONCLUSIVE, unsure
    passed = len({r.gate for r in deciding})
    return Verdict.PASS, (f"all {len(deciding)} rules of {passed} gates that decide passed",)


def _sentences(results: Sequence[GateResult], verdict: Verdict) -> tuple[str, ...]:
    """The sentences of results with this verdict: behaviour before speed, critical before supporting."""
    found = [r for r in results if r.verdict is verdict]
    found.sort(key=lambda r: (r.rule in _SPEED, r.tier != "critical"))
    return tuple(f"{r.gate}: {r.sentence}" for r in found)
