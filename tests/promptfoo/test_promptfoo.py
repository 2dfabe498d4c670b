"""promptfoo and the gate judge the same replies alike: annie-nano passes for both, stranger-nano for neither.

Both ask through a gateway, which filters: what is compared is what a caller would get. Run by
`make test-promptfoo`.
"""

import asyncio
from dataclasses import dataclass
from pathlib import Path

import pytest

from gates.policy.load import load_policy
from gates.suite.load import load_suite
from tests.promptfoo import ours, peer
from tests.promptfoo.cases import SIZES, chosen, config
from tests.promptfoo.gateway import serving

pytestmark = [pytest.mark.promptfoo, pytest.mark.engine, pytest.mark.timeout(1800)]

BROKEN = {"leak", "no_markdown", "tools"}
"""What the policy's own negative control has to fail."""


@dataclass(frozen=True)
class Judges:
    """What promptfoo said and what the gate said, by case and gate."""

    promptfoo: peer.Judged
    gate: peer.Judged

    @property
    def disagreements(self) -> list[str]:
        """By name, with what each says."""
        return [
            f"{gate} {case}: promptfoo: {theirs or 'ok'}; the gate: {self.gate[case, gate] or 'ok'}"
            for (case, gate), theirs in self.promptfoo.items()
            if bool(theirs) != bool(self.gate[case, gate])
        ]

    @property
    def lines(self) -> list[str]:
        """What is worth a look: failures by gate and judge, and who disagrees where."""
        counts = []
        for gate in SIZES:
            theirs, mine = outcomes(self.promptfoo, gate), outcomes(self.gate, gate)
            good = f"promptfoo passes {sum(theirs)}, the gate {sum(mine)}"
            counts.append(f"{gate}: of {len(mine)} {good}")
        return [*counts, *(f"DISAGREE: {line}" for line in self.disagreements)]


def outcomes(judged: peer.Judged, gate: str) -> list[bool]:
    """Whether each reply was good for a gate."""
    return [not why for (_, name), why in judged.items() if name == gate]


def failed(judged: peer.Judged) -> set[str]:
    """The gates whose share of good replies is below what the policy asks: all of them, or its rate."""
    policy = load_policy("annie-nano")
    found = set()
    for gate in SIZES:
        good, rate = outcomes(judged, gate), policy.gates[gate].rate
        if sum(good) < len(good) * (rate.least if rate else 1.0):
            found.add(gate)
    return found


def judges(model: str, reasoning: str, folder: Path) -> Judges:
    """Both judges over one model behind a gateway."""
    if reason := peer.missing():
        pytest.skip(reason)
    suite = load_suite("annie-nano")
    cases = chosen(suite)
    with serving(model, reasoning, folder) as url:
        theirs = peer.evaluate(config(suite, cases, url), folder)
        both = Judges(theirs, asyncio.run(ours.judge(suite, cases, url, folder)))
    print(f"\n{model}, {len(cases)} cases:", *both.lines, sep="\n  ")
    return both


@pytest.fixture(scope="module")
def annie(tmp_path_factory: pytest.TempPathFactory) -> Judges:
    """As the embedded default serves her."""
    return judges("annie-nano-q4_k_m", "strip", tmp_path_factory.mktemp("annie"))


@pytest.fixture(scope="module")
def stranger(tmp_path_factory: pytest.TempPathFactory) -> Judges:
    """With its thoughts in a field of their own, where both judges can see them."""
    return judges("stranger-nano-q4_k_m", "separate", tmp_path_factory.mktemp("stranger"))


def test_both_judge_every_case_for_the_same_gates(annie: Judges) -> None:
    assert annie.promptfoo.keys() == annie.gate.keys()
    for gate, size in SIZES.items():
        assert sum(name == gate for _, name in annie.gate) >= size


def test_promptfoo_agrees_with_the_gate_on_every_case_of_annie_nano(annie: Judges) -> None:
    assert annie.disagreements == []


def test_annie_nano_passes_for_both(annie: Judges) -> None:
    assert failed(annie.promptfoo) == failed(annie.gate) == set()


def test_where_stranger_nano_fails_they_agree_too(stranger: Judges) -> None:
    """annie-nano's replies are nearly all good; among these, both kinds occur for most gates.

    The assertions know this suite's prompts, and not every wording of a model without manners.
    """
    assert len(stranger.disagreements) <= len(stranger.gate) * 0.02, stranger.disagreements


def test_stranger_nano_fails_for_both(stranger: Judges) -> None:
    assert failed(stranger.promptfoo) >= BROKEN
    assert failed(stranger.gate) >= BROKEN
