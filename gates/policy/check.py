"""Whether a policy can decide on a suite: finds rules that could never pass or never be fed. Pure."""

from collections.abc import Iterator
from math import inf

from gates.contracts.case import Suite
from gates.contracts.errors import PolicyError
from gates.policy.policy import CompareRule, GateRules, LatencyRule, Policy, RateRule
from gates.stats import compare, quantile, rate


def check_policy(policy: Policy, suite: Suite) -> None:
    """Raise PolicyError with the first problem if the policy cannot decide on the suite."""
    for fault in policy_problems(policy, suite):
        raise PolicyError(f"policy {policy.name}: {fault}")


def policy_problems(policy: Policy, suite: Suite) -> Iterator[str]:
    """Every demand of the policy that its own numbers, or the suite's size, cannot meet."""
    for name, gate in policy.gates.items():
        where = f"gates.{name}"
        yield from _check_rules(policy, gate, where)
        yield from _check_sizes(gate, where, name, suite)
        if gate.compare:
            yield from _check_self_comparison(policy, where, name, suite)
    for name, latency in policy.latency.items():
        level = policy.level(latency.n, latency.n_max)
        yield from _check_quantile(latency, f"latency.{name}", level)
        if latency.ratio and latency.ratio.blocks > policy.speed.blocks:
            blocks = latency.ratio.blocks
            yield f"latency.{name}.ratio.blocks is {blocks}; speed.blocks runs {policy.speed.blocks}"


def _check_rules(policy: Policy, gate: GateRules, where: str) -> Iterator[str]:
    """Rules whose sample sizes are too small for any model to pass."""
    if gate.compare:
        level = policy.level(gate.compare.n, gate.compare.n_max)
        yield from _check_margin(gate.compare, f"{where}.compare", level)
    if gate.rate:
        yield from _check_rate(gate.rate, f"{where}.rate", policy.level(gate.rate.n, gate.rate.n_max))


def _check_margin(rule: CompareRule, where: str, confidence: float) -> Iterator[str]:
    if not compare.passes(0, 0, rule.n, rule.margin, confidence):
        yield (
            f"{where}: n = {rule.n} cannot resolve a margin of {rule.margin:g}: it would not pass with no "
            f"prompt lost; {compare.resolving_n(rule.margin, confidence)} prompts can"
        )


def _check_rate(rule: RateRule, where: str, confidence: float) -> Iterator[str]:
    if rate.needed(rule.n, rule.least, confidence) == inf:
        n = rule.n
        while rate.needed(n, rule.least, confidence) == inf:
            n += 1
        yield f"{where}: {rule.n} of {rule.n} would not show {rule.least:g}; {n} of {n} would"


def _check_quantile(latency: LatencyRule, where: str, confidence: float) -> Iterator[str]:
    least = quantile.smallest_n(latency.quantile, confidence)
    if latency.n < least:
        yield f"{where}: n = {latency.n} values do not bound this quantile; {least} do"


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
        yield from (
            f"{where}.floor: {case.id} is named and in stage {case.stage}; named cases are asked first"
            for case in named
            if case.stage != 1
        )


def _check_self_comparison(policy: Policy, where: str, name: str, suite: Suite) -> Iterator[str]:
    first = len(suite.of(name, 1))
    if policy.same.n > first:
        yield f"same.n is {policy.same.n}; suite {suite.name} has {first} {name} prompts in stage 1 ({where})"
