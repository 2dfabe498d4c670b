"""Whether a policy can decide on a suite: finds rules that could never pass or never be fed. Pure."""

from collections.abc import Callable, Iterator
from functools import partial
from itertools import count

from gates.contracts.case import Suite
from gates.contracts.errors import PolicyError
from gates.policy.policy import GateRules, Policy
from gates.stats.plans import QuantilePlan, RatePlan, passes


def check_policy(policy: Policy, suite: Suite) -> None:
    """Raise PolicyError with the first problem if the policy cannot decide on the suite."""
    for fault in policy_problems(policy, suite):
        raise PolicyError(f"policy {policy.name}: {fault}")


def policy_problems(policy: Policy, suite: Suite) -> Iterator[str]:
    """Every demand of the policy that its own numbers, or the suite's size, cannot meet."""
    for name, gate in policy.gates.items():
        where = f"gates.{name}"
        if c := gate.compare:
            level = policy.level(c.n, c.n_max)
            yield from _too_few(
                f"{where}.compare", c.n, partial(passes, 0, 0, margin=c.margin, confidence=level)
            )
        if r := gate.rate:
            rate = RatePlan(r.n, r.least, confidence=policy.level(r.n, r.n_max))
            yield from _too_few(f"{where}.rate", r.n, partial(_all_good, rate))
        yield from _check_sizes(gate, where, name, suite)
        if gate.compare and policy.same.n > (first := len(suite.of(name, 1))):
            there = f"suite {suite.name} has {first} {name} prompts in stage 1 ({where})"
            yield f"same.n is {policy.same.n}; {there}"
    if [name for name, gate in policy.gates.items() if gate.tier == "critical"] == ["judge"]:
        yield "gates.judge is the only critical gate; a model's opinion may not decide alone: make another one critical"
    for name, latency in policy.latency.items():
        plan = QuantilePlan(latency.n, 0, latency.quantile, policy.level(latency.n, latency.n_max))
        yield from _too_few(f"latency.{name}", latency.n, partial(_all_good, plan))
        if latency.ratio and latency.ratio.blocks > policy.speed.blocks:
            blocks = latency.ratio.blocks
            yield f"latency.{name}.ratio.blocks is {blocks}; speed.blocks runs {policy.speed.blocks}"


def _all_good(plan: RatePlan | QuantilePlan, n: int) -> bool:
    return plan.passes(n, n)


def _too_few(where: str, n: int, suffices: Callable[[int], object]) -> Iterator[str]:
    """A size with which even a perfect model could not pass."""
    if not suffices(n):
        least = next(more for more in count(n) if suffices(more))
        yield f"{where}.n is {n}, with which no model can pass; with {least} a perfect one does"


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
