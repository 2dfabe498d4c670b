"""docs/gates.md shows the detectors' current figures, and a report says how often each rule passes."""

import pytest

from gates.judge.context import Measurements
from gates.judge.decide import decide
from gates.policy.load import load_policy
from gates.suite.load import load_suite
from tests.gates.handbook import DOCUMENT, written


def test_its_figures_are_current() -> None:
    text = DOCUMENT.read_text("utf-8")
    assert written(text) == text


@pytest.mark.parametrize("name, suite", [("annie", "annie"), ("annie-nano-short", "annie-nano")])
def test_every_rule_says_how_often_it_passes(name: str, suite: str) -> None:
    found = decide(load_policy(name), Measurements(suite=load_suite(suite), candidate=())).gates
    said = [
        gate.curve_words
        for gate in found
        if gate.rule != "ratio" and not gate.gate.endswith(("[calls]", "[no call]"))
    ]
    assert said and all("would pass" in words and "of runs" in words for words in said)
