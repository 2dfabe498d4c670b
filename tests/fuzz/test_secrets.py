"""The search for secrets that are heard: it finds a fault that is planted, and in a few replies none that is not."""

import random
import re

import pytest

from app.stream.open_thoughts import OpenThoughts
from tests.fuzz import replies
from tests.fuzz.differential import Setting, _smaller
from tests.fuzz.replies import Piece, Reply, Secret
from tests.fuzz.secrets import FOLDERS, LONGEST, WAYS, Way, inputs, mutated, search, shape

CORPUS = inputs(FOLDERS)
REPLIES = 150
SOUND = 2


def _close_any(self: OpenThoughts, family: str) -> bool:
    """The innermost thought's end ends those around it."""
    was_open = bool(self)
    self.clear()
    return was_open


def test_a_planted_fault_is_found_and_its_reply_made_small(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(OpenThoughts, "close", _close_any)
    monkeypatch.setattr(replies, "MAKERS", (replies.prose, replies.hermes_call, replies.nested_thought))
    found = search(CORPUS, seconds=60, seed=1, limit=30)
    one_thought = re.compile(r"\[content '<(\w+)>SECRET<\1>SECRET</\1>SECRET</\1>'\] finish=stop")
    assert found.findings and all(one_thought.fullmatch(key) for key in found.findings)
    printed = capsys.readouterr().out.splitlines()
    assert printed == list(found.findings.values()), "each finding is told once, when it is made"


def test_nothing_is_found_where_nothing_is_wrong() -> None:
    found = search(CORPUS, seconds=60, seed=SOUND, limit=REPLIES)
    assert not found.findings
    assert found.replies.total() == REPLIES


@pytest.mark.parametrize("way", sorted(set(WAYS), key=str), ids=str)
def test_a_secret_that_is_spoken_is_heard_in_every_way(way: Way) -> None:
    spoken = Reply((Piece("content", "Hi, SECRET1Z.", secrets=(Secret("SECRET1Z"),)),))
    (fault,) = way.faults(spoken, Setting("vllm", tools=True, thinking=False, guard=0))
    assert fault.kind == "secret" and str(way) in fault.detail


def test_a_mutation_of_an_input_is_another_one_that_is_no_longer_than_what_is_read() -> None:
    rng = random.Random(0)
    made = [mutated(data, CORPUS, rng) for data in [*CORPUS, b"", b"x" * LONGEST]]
    assert all(len(data) <= LONGEST for data in made)
    assert len({*made, *CORPUS}) > 1.9 * len(CORPUS)


def test_faults_that_differ_in_their_words_alone_are_one_finding() -> None:
    first, second = (Reply((Piece("content", f"<think>SECRET{n}Z"),), finish=None) for n in (1, 12))
    assert shape(first) == shape(second) == "[content '<think>SECRET'] finish=stop"


def test_of_parts_that_belong_together_all_are_left_out_or_none() -> None:
    """Otherwise the rest of a call, alone, is a finding that is none."""
    head, between = Piece("content", "<tool_", joined=True), Piece("reasoning", "hm", joined=True)
    rest, other = Piece("content", "call>SECRET1Z"), Piece("content", "Hi.")
    kept = [smaller.pieces for smaller in _smaller(Reply((other, head, between, rest)), "secret")]
    assert kept == [(head, between, rest), (other,)]
