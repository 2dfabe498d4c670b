"""The table of what a policy would let pass, and the command that prints it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from gates.judge.decide import decide
from gates.judge.operating import markdown, operating_table
from gates.policy.load import load_policy, shipped
from tests.gates.judged import outcomes, policy

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("name", shipped())
def test_every_rule_has_a_row_and_a_curve(name: str) -> None:
    """One line a rule; every chance is one, and the curve says something."""
    law = load_policy(name)
    rows = operating_table(law)
    rules = [rule for g in law.gates.values() for rule in (g.floor, g.zero, g.rate, g.compare) if rule]

    assert len(rows) == len(rules) + len(law.latency)
    for row in rows:
        assert len(row.curve) > 3 and all(0.0 <= point.chance <= 1.0 for point in row.curve)
        assert "would pass" in row.words and "% of runs" in row.words


def test_curves_rise_as_models_get_better() -> None:
    """A better model passes at least as often."""
    for row in operating_table(load_policy("annie")):
        worse_first = row.rule in ("zero", "compare")
        chances = [p.chance for p in sorted(row.curve, key=lambda p: -p.rate if worse_first else p.rate)]
        assert chances == sorted(chances), row


def test_a_report_prints_the_same_curves_as_the_table() -> None:
    """For a suite of just the policy's sizes."""
    table = {(row.gate, row.rule): row.words for row in operating_table(policy())}
    report = {
        (r.gate, r.rule): r.curve_words for r in decide(policy(), outcomes()).gates if r.rule != "ratio"
    }

    del table["ttft", "latency"], report["ttft", "latency"]  # 104 were timed, not 100
    assert report == table


def test_the_words_for_the_leak_gate() -> None:
    """The sentence that goes into a report."""
    (row,) = [r for r in operating_table(load_policy("annie")) if (r.gate, r.rule) == ("leak", "zero")]

    assert row.asks == "0 of 165, or 1 of 280"
    assert row.words == (
        "would pass a model that leaks 2 % of the time in 4.6 % of runs, and one at 0.1 % in 95.4 %"
    )


def test_the_table_is_markdown() -> None:
    """A head, a rule and a line for each row, all with as many columns."""
    text = markdown(operating_table(policy()))

    assert text.endswith("|\n")
    assert {line.count("|") for line in text.splitlines()} == {6}


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "gates.judge", *arguments], cwd=ROOT, capture_output=True, text=True
    )


@pytest.mark.slow  # the power of every shipped rule: 2 s
def test_the_command_prints_the_table() -> None:
    """Of annie, if nothing else is asked."""
    done = run()

    assert done.returncode == 0
    assert done.stdout == markdown(operating_table(load_policy("annie")))


def test_the_command_says_what_is_wrong_in_one_line() -> None:
    """And exits as a command that got bad data."""
    done = run("anny")

    assert done.returncode == 65
    assert done.stderr == "anny: no such policy; did you mean 'annie'?; or give a .toml file\n"
