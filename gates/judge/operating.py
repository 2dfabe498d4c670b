"""What a policy would let pass, and how often: its rules' operating curves as a table. Pure.

    python -m gates.stats [POLICY]

prints it. The sizes are the policy's; a suite that holds more prompts is stricter than this.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from gates.contracts.verdict import Pass, Tier
from gates.judge.curves import Curve, of_compare, of_floor, of_latency, of_rate, of_zero
from gates.judge.words import percent
from gates.policy.rules import Gate
from gates.policy.values import UNITS, Policy
from gates.stats.compare import ComparePlan
from gates.stats.quantile import QuantilePlan
from gates.stats.rate import RatePlan
from gates.stats.zero import ZeroPlan


@dataclass(frozen=True, slots=True)
class Row:
    """One rule of one gate: what it asks, its curve, and the curve's sentence."""

    gate: str
    tier: Tier
    rule: str
    asks: str
    curve: tuple[Pass, ...]
    words: str


def operating_table(policy: Policy) -> tuple[Row, ...]:
    """Every rule of a policy with what it would let through."""
    rows = [row for name, gate in policy.gates.items() for row in _rows(policy, name, gate)]
    for metric, rule in policy.latency.items():
        keeps = f"{'at least' if metric == 'decode' else 'at most'} {rule.limit:g} {UNITS[metric]}"
        curve, words = of_latency(
            keeps, QuantilePlan(rule.n, rule.n_max - rule.n, rule.quantile, policy.level(rule.n, rule.n_max))
        )
        asks = f"quantile {rule.quantile:g} {keeps}, n {_sizes(rule.n, rule.n_max)}"
        rows.append(Row(metric, rule.tier, "latency", asks, curve, words))
    return tuple(rows)


def _rows(policy: Policy, name: str, gate: Gate) -> Iterator[Row]:
    def row(rule: str, asks: str, found: Curve) -> Row:
        return Row(name, gate.tier, rule, asks, *found)

    if gate.floor:
        yield row("floor", f"{gate.floor.least} of {gate.floor.of} named", of_floor(name, gate.floor))
    if gate.zero:
        plan = ZeroPlan(gate.zero.first, gate.zero.second, gate.floor.of if gate.floor else 0)
        asks = f"0 of {gate.zero.first}" + (f", or 1 of {plan.first + plan.second}" if plan.second else "")
        yield row("zero", asks, of_zero(name, plan))
    if gate.rate:
        r = gate.rate
        found = of_rate(name, RatePlan(r.n, r.least, r.n_max - r.n, policy.level(r.n, r.n_max)))
        yield row("rate", f"at least {percent(r.least)}, n {_sizes(r.n, r.n_max)}", found)
    if gate.compare:
        c = gate.compare
        found = of_compare(ComparePlan(c.n, c.margin, c.n_max - c.n, policy.level(c.n, c.n_max)))
        yield row("compare", f"at most {percent(c.margin)} worse, n {_sizes(c.n, c.n_max)}", found)


def _sizes(n: int, n_max: int) -> str:
    return f"{n}" if n == n_max else f"{n}, extended to {n_max}"


def markdown(rows: tuple[Row, ...]) -> str:
    """The table as Markdown, one line a rule, with a line break at its end."""
    lines = ["| gate | tier | rule | asks | what it would let pass |", "|---|---|---|---|---|"]
    lines += [f"| {r.gate} | {r.tier} | {r.rule} | {r.asks} | {r.words} |" for r in rows]
    return "\n".join(lines) + "\n"
