"""How numbers are said, and drawn: a bound never promises more than it bounds."""

import math
from dataclasses import replace

import pytest

from gates.contracts.verdict import GateResult, Interval, Verdict
from gates.report.charts import axis_ticks
from gates.report.labels import amount, headline, interval_bound, measured, reasons, required
from tests.gates.report import examples
from tests.gates.report.examples import F, P, U

ZERO = examples.zero("leak", P, 0, 0.01799)
RATE = examples.rate("tools", P, 100, 5, 0.90149, 0.97651, 0.60)
COMPARE = examples.compare("tools", P, 100, [1, 2], [3], -0.028, 0.04612)
RATIO = examples.ratio("ttft", P, 0.02, -0.01, 0.0512)
TTFT = examples.latency("ttft", P, 100, 91.64, 89.96, 93.11, 120, "ms")
DECODE = examples.latency("decode", P, 100, 33.14, 32.77, 33.41, 25, "tokens/s")


def between(gate: GateResult, low: float | None, high: float | None, verdict: Verdict = P) -> GateResult:
    return replace(gate, interval=Interval(low, high, 0.95, "x"), verdict=verdict)


BOUNDS = [
    (ZERO, "at most 1.8 % fail"),
    (between(ZERO, 0.0961, None, F), "at least 9.6 % fail"),
    (RATE, "at least 90.1 %"),
    (between(RATE, 0.152, 0.2591, F), "at most 26 %"),
    (between(RATE, 0.578, 0.733, U), "at least 57 %"),
    (COMPARE, "1 pt worse, at most 4.7 pt worse"),
    (between(COMPARE, -0.09, -0.031), "1 pt worse, at least 3.1 pt better"),
    (between(COMPARE, 0.0749, 0.09, F), "1 pt worse, at least 7.4 pt worse"),
    (RATIO, "at most 5.2 % slower"),
    (between(RATIO, -0.731, -0.694), "at least 69 % faster"),
    (between(RATIO, 0.128, 0.2, F), "at least 12 % slower"),
    (TTFT, "at most 93.2 ms"),
    (between(TTFT, 131.7, 150.2, F), "at least 131 ms"),
    (DECODE, "at least 32.7 tokens/s"),
    (between(DECODE, 11.0, 13.37, F), "at most 13.4 tokens/s"),
    (between(TTFT, 80.0, None), "at least 80 ms"),
    (examples.floor("leak", F, 25, 5, 25), ""),
    (replace(TTFT, interval=None), ""),
    (between(TTFT, None, None), ""),
]


@pytest.mark.parametrize("gate, words", BOUNDS)
def test_a_bound_is_rounded_away_from_what_it_bounds(gate: GateResult, words: str) -> None:
    assert words == interval_bound(gate)


REQUIRED = [
    (ZERO, "0 failures"),
    (RATE, "≥ 60 %"),
    (COMPARE, "≤ 5 pt worse"),
    (RATIO, "≤ 10 % slower"),
    (TTFT, "≤ 120 ms"),
    (DECODE, "≥ 25 tokens/s"),
    (examples.floor("tools", P, 10, 1, 6), "≥ 6 of 10"),
    (replace(examples.floor("tools", U, 10, 1, 6), n=7), "≥ 60 %"),
    (replace(RATE, limit=None), ""),
]


@pytest.mark.parametrize("gate, words", REQUIRED)
def test_what_is_required_is_said_in_the_rules_unit(gate: GateResult, words: str) -> None:
    assert words == required(gate)


def test_what_was_measured_is_said_in_the_rules_unit() -> None:
    assert [measured(g) for g in (ZERO, RATE, COMPARE, RATIO, TTFT)] == [
        "0 of 165 failed", "95 of 100", "1 pt worse", "2 % slower", "91.6 ms",
    ]  # fmt: skip
    assert measured(replace(TTFT, n=0, estimate=None)) == "nothing"
    assert amount(None, TTFT) == "–"
    assert amount(math.inf, TTFT) == "∞ ms"
    assert amount(1234.5, TTFT) == "1,234 ms"
    assert (amount(0.0, COMPARE), amount(0.0, RATIO)) == ("no worse", "as fast")


def test_the_headline_says_why_it_is_open() -> None:
    base = examples.inconclusive()
    whole = replace(base.decision, controls=(), gates=(RATE,))

    assert "4 of 14 deciding rules are undecided and 1 control did not give the expected result" in headline(
        base
    )
    assert "the run is incomplete" in headline(replace(base, decision=whole))


def test_reasons_name_their_gate_by_its_title() -> None:
    assert reasons(examples.inconclusive())[1][0] == "No leaked thoughts"
    assert reasons(examples.inconclusive())[0] == (
        "",
        "Control asked for markdown must fail on no_markdown, and gave pass.",
    )
    assert reasons(examples.passing()) == []


# ---------------------------------------------------------------------------------------- drawings


@pytest.mark.parametrize(
    "most, ticks",
    [
        (120.0, [0, 50, 100, 150]),
        (0.9, [0, 0.5, 1.0]),
        (1800.0, [0, 500, 1000, 1500, 2000]),
        (0.0, [0, 1]),
        (math.inf, [0, 1]),
    ],
)
def test_ticks_are_round_numbers(most: float, ticks: list[float]) -> None:
    assert axis_ticks(most) == pytest.approx(ticks)
