"""How numbers are said, and drawn: a bound never promises more than it bounds."""

import math
from dataclasses import replace

import pytest

from gates.contracts.verdict import GateResult, Rule, Verdict
from gates.report.labels import amount, measured, reasons, required
from tests.gates.report import examples


def result(
    rule: Rule, n: int, bad: int, estimate: float, limit: float, unit: str = "share", gate: str = "tools"
) -> GateResult:
    return GateResult(gate, rule, "critical", Verdict.PASS, n, bad, estimate, None, limit, unit, "")


ZERO = result("zero", 165, 0, 0.0, 0.0)
RATE = result("rate", 100, 5, 0.95, 0.60)
COMPARE = result("compare", 100, 2, 0.01, 0.05)
RATIO = result("ratio", 100, 0, 0.02, 0.10, "share slower")
TTFT = result("latency", 100, 0, 91.64, 120.0, "ms", "ttft")
DECODE = result("latency", 100, 0, 33.14, 25.0, "tokens/s", "decode")
FLOOR = result("floor", 10, 1, 0.9, 0.6)

REQUIRED = [
    (ZERO, "0 failures"),
    (RATE, "≥ 60 %"),
    (COMPARE, "≤ 5 pt worse"),
    (RATIO, "≤ 10 % slower"),
    (TTFT, "≤ 120 ms"),
    (DECODE, "≥ 25 tokens/s"),
    (FLOOR, "≥ 6 of 10"),
    (replace(FLOOR, n=7), "≥ 60 %"),
    (replace(RATE, limit=None), ""),
]


@pytest.mark.parametrize("gate, words", REQUIRED)
def test_what_is_required_is_said_in_the_rules_unit(gate: GateResult, words: str) -> None:
    assert words == required(gate)


def test_what_was_measured_is_said_in_the_rules_unit() -> None:
    assert [measured(g) for g in (ZERO, RATE, COMPARE, RATIO, TTFT)] == [
        "165/165", "95/100", "1 pt worse", "2 % slower", "91.6 ms",
    ]  # fmt: skip
    assert measured(replace(TTFT, n=0, estimate=None)) == "nothing"
    assert amount(None, TTFT) == "–"
    assert amount(math.inf, TTFT) == "∞ ms"
    assert amount(1234.5, TTFT) == "1,234 ms"
    assert (amount(0.0, COMPARE), amount(0.0, RATIO)) == ("no worse", "as fast")


def test_reasons_name_their_gate_by_its_title() -> None:
    assert reasons(examples.inconclusive())[1][0] == "No leaked thoughts"
    assert reasons(examples.inconclusive())[0] == (
        "",
        "Control asked for markdown must fail on no_markdown, and gave pass.",
    )
    assert reasons(examples.passing()) == []
