"""The table of what a policy would let pass, and the command that prints it."""

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
    law = load_policy(name)
    rows = operating_table(law)
    rules = [rule for g in law.gates.values() for rule in (g.floor, g.zero, g.rate, g.compare) if rule]

    assert len(rows) == len(rules) + len(law.latency)
    for row in rows:
        assert len(row.curve) > 3 and all(0.0 <= point.chance <= 1.0 for point in row.curve)
        assert "would pass" in row.words and "% of runs" in row.words


def test_a_report_prints_the_same_curves_as_the_table() -> None:
    table = {(row.gate, row.rule): row.words for row in operating_table(policy())}
    report = {
        (r.gate, r.rule): r.curve_words for r in decide(policy(), outcomes()).gates if r.rule != "ratio"
    }

    del table["ttft", "latency"], report["ttft", "latency"]  # 104 were timed, not 100
    assert report == table


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "gates.judge", *arguments], cwd=ROOT, capture_output=True, text=True
    )


@pytest.mark.slow  # the power of every shipped rule: 2 s
def test_the_command_prints_the_table() -> None:
    done = run()

    assert done.returncode == 0
    assert done.stdout == markdown(operating_table(load_policy("annie")))


def test_the_command_says_what_is_wrong_in_one_line() -> None:
    done = run("anny")

    assert done.returncode == 65
    assert done.stderr == "anny: no such policy; did you mean 'annie'?; or give a .toml file\n"
