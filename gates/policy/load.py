"""Policies: TOML files (`gates/policies/annie.toml` uses and explains every key), or made for a suite where nobody wrote one."""

from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Final

from gates.contracts.case import Suite
from gates.contracts.errors import PolicyError
from gates.contracts.verdict import Tier
from gates.decode.files import TomlFiles, read_text
from gates.policy.policy import (
    CompareRule,
    GateRules,
    Policy,
    RunSettings,
    SelfComparison,
    TemperatureRepeats,
    ZeroRule,
)
from gates.stats.plans import TwoLooks, compare_plan, pass_chance, passes, quantile_plan, rate_plan

DERIVED: Final = "derived"
"""The name by which a configuration or `--policy` asks for it."""
CHURN: Final = 0.02
"""The assumed share of prompts that flip in the candidate's favour by chance: equal models then disagree on 4 %, as one
baseline asked twice does where batching is not deterministic."""
POWER: Final = 0.8
"""The least chance that an equal model passes a comparison."""
LEAST: Final = 3
"""Prompts with which two models can be compared at all."""
_MARGINS: Final = (0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.4, 0.5)
_NONE: Final = ("leak", "raw_call", "empty")
"""Gates of which no prompt may fail; the others may not be worse than the baseline."""


def derive(suite: Suite) -> Policy:
    """No leak, no raw call and no empty reply; everything else no worse than the baseline, by the least margin that an equal model
    keeps with a chance of POWER. Of fewer than LEAST prompts none may fail. A judge model decides if it has labelled replies.
    """
    gates = dict(_rules(suite))
    compared = [rules.compare.n for rules in gates.values() if rules.compare]
    return Policy(
        name=DERIVED,
        version=1,
        run=RunSettings((TemperatureRepeats(0.0, 1),)),
        gates=gates,
        same=SelfComparison(min(compared, default=1)),
        description=f"Derived from suite {suite.name}.",
    )


def _rules(suite: Suite) -> Iterator[tuple[str, GateRules]]:
    labelled = any(case.expect.get("judge", {}).get("labels") for case in suite.cases)
    for gate in dict.fromkeys(gate for case in suite.cases for gate in case.gates):
        n = len(suite.of(gate, 1))
        # A judge whose agreement with people nobody has measured decides nothing.
        tier: Tier = "critical" if gate != "judge" else "supporting" if labelled else "advisory"
        if gate in _NONE or n < LEAST:
            yield gate, GateRules(tier, "every", zero=ZeroRule(n))
        else:
            kept = (m for m in _MARGINS if passes(0, 0, n, m) and pass_chance(n, m, 0.0, CHURN) >= POWER)
            yield gate, GateRules(tier, "greedy", compare=CompareRule(next(kept, _MARGINS[-1]), n, n))


FILES: Final = TomlFiles("policy", Path(__file__).parents[1] / "policies", PolicyError)
shipped: Final = FILES.shipped


def load_policy(name_or_path: str | Path) -> Policy:
    """A shipped policy by name, or any policy by the path of its .toml file. Raises PolicyError, one line that names the key."""
    path = FILES.path(name_or_path)
    return FILES.read(Policy, read_text(path, PolicyError), str(path))


def policy_for(name_or_path: str | Path, suite: Suite) -> Policy:
    """As `load_policy`; "derived" is made for the suite. Raises PolicyError."""
    return derive(suite) if name_or_path == DERIVED else load_policy(name_or_path)


def check_policy(policy: Policy, suite: Suite) -> None:
    """Raise PolicyError with the first problem if the policy cannot decide on the suite."""
    for fault in policy_problems(policy, suite):
        raise PolicyError(f"policy {policy.name}: {fault}")


def policy_problems(policy: Policy, suite: Suite) -> Iterator[str]:
    """Every demand of the policy that its own numbers, or the suite's size, cannot meet."""
    for name, gate in policy.gates.items():
        where = f"gates.{name}"
        if c := gate.compare:
            plan = compare_plan(c.n, c.margin, confidence=policy.level(c.n, c.n_max))
            yield from _too_few(f"{where}.compare", plan, 0, 0)
        if r := gate.rate:
            yield from _too_few(f"{where}.rate", rate_plan(r.n, r.least, 0, policy.level(r.n, r.n_max)))
        yield from _check_sizes(gate, where, name, suite)
        if gate.compare and policy.same.n > (first := len(suite.of(name, 1))):
            there = f"suite {suite.name} has {first} {name} prompts in stage 1 ({where})"
            yield f"same.n is {policy.same.n}; {there}"
    if [name for name, gate in policy.gates.items() if gate.tier == "critical"] == ["judge"]:
        yield "gates.judge is the only critical gate; a model's opinion may not decide alone: make another one critical"
    for name, latency in policy.latency.items():
        level = policy.level(latency.n, latency.n_max)
        yield from _too_few(f"latency.{name}", quantile_plan(latency.n, 0, latency.quantile, level))
        if latency.ratio and latency.ratio.blocks > policy.speed.blocks:
            yield f"latency.{name}.ratio.blocks is {latency.ratio.blocks}; speed.blocks runs {policy.speed.blocks}"


def _too_few(where: str, plan: TwoLooks, *perfect: int) -> Iterator[str]:
    """A size with which even a perfect model, of all right or of these counts, could not pass."""
    least = next(n for n in count(plan.n) if plan.passes(n, *(perfect or (n,))))
    if least > plan.n:
        yield f"{where}.n is {plan.n}, with which no model can pass; with {least} a perfect one does"


def _check_sizes(gate: GateRules, where: str, name: str, suite: Suite) -> Iterator[str]:
    """Stages that need more prompts than the suite has, and named cases that do not match the policy's count."""
    first, both = len(suite.of(name, 1)), len(suite.of(name))
    wanted = []  # (key, how many, how many there are, of what)
    if gate.zero:
        wanted += [("zero.first", gate.zero.first, first, "stage 1")]
        wanted += [("zero.second", gate.zero.second, both - first, "stage 2")]
    for key, rule in (("rate", gate.rate), ("compare", gate.compare)):
        if rule:
            wanted += [(f"{key}.n", rule.n, first, "stage 1"), (f"{key}.n_max", rule.n_max, both, "all")]
    for key, size, there, what in wanted:
        if size > there:
            yield f"{where}.{key} is {size}; suite {suite.name} has {there} {name} prompts in {what}"
    if gate.floor:
        named = [case for case in suite.of(name) if name in case.named]
        if len(named) != gate.floor.of:
            yield f"{where}.floor.of is {gate.floor.of}; suite {suite.name} names {len(named)} {name} prompts"
