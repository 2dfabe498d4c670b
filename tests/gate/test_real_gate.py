"""annie-nano passes; a stranger, a model that always thinks and a Q2_K file fail for the right reason."""

from collections import Counter
from collections.abc import Callable

import pytest

from gates.run.sample_store import read_samples
from tests.gate.conftest import BAD, MODELS, Ended, House
from tests.scale import scaled

pytestmark = [pytest.mark.gate, pytest.mark.timeout(1800)]


RARER: frozenset[tuple[str, str]] = scaled(frozenset(), frozenset({("leak", "floor"), ("raw_call", "zero")}))
"""What the thin file fails by, too, where she is asked the whole suite."""
CONTROLS = {"A/A", "tools-removed", *scaled((), ("stranger", "thinking-on"))}
"""What a run of the policy shows of itself."""


@pytest.fixture(scope="session")
def passed(house: House) -> Ended:
    """annie-nano's run, killed half-way and resumed."""
    samples = scaled(300, 1000)
    assert house.begin_and_kill("annie", samples) >= samples
    return house.run("annie")


def test_annie_nano_passes_though_her_run_was_killed_half_way(passed: Ended) -> None:
    assert passed.code == 0, passed.said[-3000:]
    assert passed.statement.verdict == "pass"


def test_nothing_was_run_twice_and_nothing_lost(passed: Ended) -> None:
    keys = Counter(sample.key for sample in read_samples(passed.out / "samples.jsonl"))
    assert max(keys.values()) == 1
    assert len(passed.statement.samples.lines) == len(keys)


def test_the_report_holds_its_own_proof_that_it_can_fail(passed: Ended) -> None:
    controls = {c.name: c for c in passed.statement.decision.controls}
    assert controls.keys() >= CONTROLS
    assert all(control.holds for control in controls.values())


@pytest.mark.parametrize("candidate, gates", BAD.items(), ids=BAD.keys())
def test_a_bad_candidate_fails_for_the_right_reason(
    ran: Callable[[str], Ended], candidate: str, gates: set[str]
) -> None:
    run = ran(candidate)
    assert run.code == 1, run.said[-3000:]
    assert run.statement.verdict == "fail"
    assert run.failed & gates, run.said[-3000:]


def test_a_q2_k_file_is_refused_before_the_long_part_for_what_a_caller_would_hear(
    ran: Callable[[str], Ended],
) -> None:
    stated = ran("thin").statement
    assert stated.candidate.model.format == "gguf-q2_k"
    failed = {(r.gate, r.rule) for r in stated.decision.gates if r.verdict == "fail" and r.tier == "critical"}
    assert {("leak", "zero"), *RARER} <= failed
    assert all(rule != "compare" for _, rule in failed)


def test_a_genuine_report_is_taken(house: House, passed: Ended) -> None:
    done = house.verify(passed.out / "report.json", "--artefact", str(MODELS / "annie-nano-q4_k_m"))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "all" in done.stdout and "as signed" in done.stdout
