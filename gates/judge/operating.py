"""The operating curves of a policy's rules as a table, for its minimum sizes. Pure."""

from collections.abc import Iterator
from dataclasses import dataclass

from gates.contracts.verdict import CurvePoint, Tier
from gates.judge.curves import Curve, compare_curve, floor_curve, latency_curve, rate_curve, zero_curve
from gates.judge.formatting import percent
from gates.policy.policy import UNITS, GateRules, Policy
from gates.stats.compare import ComparePlan
from gates.stats.quantile import QuantilePlan
from gates.stats.rate import RatePlan
from gates.stats.zero import ZeroPlan


@dataclass(frozen=True, slots=True)
class OperatingRow:
    """One rule of one gate: what it asks for, its operating curve, and the curve's sentence."""

    gate: str
    tier: Tier
    rule: str
    asks: str
    curve: tuple[CurvePoint, ...]
    words: str


def operating_table(policy: Policy) -> tuple[OperatingRow, ...]:
    """Every rule of a policy with its operating curve."""
    rows = [row for name, gate in policy.gates.items() for row in _rows(policy, name, gate)]
    for metric, rule in policy.latency.items():
        keeps = f"{'at least' if metric == 'decode' else 'at most'} {rule.limit:g} {UNITS[metric]}"
        curve, words = latency_curve(
            keeps, QuantilePlan(rule.n, rule.n_max - rule.n, rule.quantile, policy.level(rule.n, rule.n_max))
        )
        asks = f"quantile {rule.quantile:g} {keeps}, n {_sizes(rule.n, rule.n_max)}"
        rows.append(OperatingRow(metric, rule.tier, "latency", asks, curve, words))
    return tuple(rows)


def _rows(policy: Policy, name: str, gate: GateRules) -> Iterator[OperatingRow]:
    def row(rule: str, asks: str, found: Curve) -> OperatingRow:
        return OperatingRow(name, gate.tier, rule, asks, *found)

    if gate.floor:
        yield row("floor", f"{gate.floor.least} of {gate.floor.of} named", floor_curve(name, gate.floor))
    if gate.zero:
        plan = ZeroPlan(gate.zero.first, gate.zero.second, gate.floor.of if gate.floor else 0)
        asks = f"0 of {gate.zero.first}" + (f", or 1 of {plan.first + plan.second}" if plan.second else "")
        yield row("zero", asks, zero_curve(name, plan))
    if gate.rate:
        r = gate.rate
        found = rate_curve(name, RatePlan(r.n, r.least, r.n_max - r.n, policy.level(r.n, r.n_max)))
        yield row("rate", f"at least {percent(r.least)}, n {_sizes(r.n, r.n_max)}", found)
    if gate.compare:
        c = gate.compare
        found = compare_curve(ComparePlan(c.n, c.margin, c.n_max - c.n, policy.level(c.n, c.n_max)))
        yield row("compare", f"at most {percent(c.margin)} worse, n {_sizes(c.n, c.n_max)}", found)


def _sizes(n: int, n_max: int) -> str:
    return f"{n}" if n == n_max else f"{n}, extended to {n_max}"


def markdown(rows: tuple[OperatingRow, ...]) -> str:
    """The table as Markdown, one line per rule, ending with a line break."""
    lines = ["| gate | tier | rule | asks | what it would let pass |", "|---|---|---|---|---|"]
    lines += [f"| {r.gate} | {r.tier} | {r.rule} | {r.asks} | {r.words} |" for r in rows]
    return "\n".join(lines) + "\n"
