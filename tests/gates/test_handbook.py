"""docs/gates.md shows the detectors' current figures."""

import pytest

from gates.judge.__main__ import main, operating_table
from gates.policy.load import load_policy
from tests.gates.handbook import DOCUMENT, written


def test_its_figures_are_current() -> None:
    text = DOCUMENT.read_text("utf-8")
    assert written(text) == text


@pytest.mark.parametrize("name", ["annie", "annie-nano-short"])
def test_every_rule_has_a_row_that_says_how_often_it_passes(name: str) -> None:
    rules = [rule for rule in load_policy(name).required_results if rule.rule != "ratio"]
    rows = operating_table(name).splitlines()[2:]

    assert [tuple(row.split(" | ")[:3]) for row in rows] == [(f"| {r.gate}", r.tier, r.rule) for r in rules]
    assert all("would pass" in row and "of runs" in row for row in rows)


@pytest.mark.parametrize(
    "words, code, said",
    [
        ([], 0, "| leak | critical | zero | would pass a model that leaks 2 % of the time in 4.4 % of runs"),
        (["anny"], 65, "anny: no such policy; did you mean 'annie'?"),
        (["annie", "anny"], 65, "anny: no such suite; did you mean 'annie'?"),
    ],
)
def test_the_command_prints_the_table_or_what_is_wrong_in_one_line(
    words: list[str],
    code: int,
    said: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr("sys.argv", ["gates.judge", *words])

    assert main() == code
    out, err = capsys.readouterr()
    assert said in (err if code else out)
    assert code == 0 or err.count("\n") == 1
