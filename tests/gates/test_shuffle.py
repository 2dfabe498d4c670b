"""The lot that puts cases into stages."""

from __future__ import annotations

import hashlib

from hypothesis import given
from hypothesis import strategies as st

from gates.suite.shuffle import seeded_shuffle

IDS = st.lists(st.text(max_size=8), unique=True)


def test_the_order_is_the_formula() -> None:
    """By the SHA-256 of seed, space, id; anyone can draw it again with a shell."""
    ids = ["a", "b", "c", "d"]

    assert seeded_shuffle("lot 1", ids) == sorted(
        ids, key=lambda i: hashlib.sha256(f"lot 1 {i}".encode()).hexdigest()
    )


@given(IDS)
def test_the_order_in_which_ids_are_given_does_not_count(ids: list[str]) -> None:
    """Nobody can move a case by writing it elsewhere."""
    assert seeded_shuffle("lot", ids) == seeded_shuffle("lot", reversed(ids))
    assert sorted(seeded_shuffle("lot", ids)) == sorted(ids)


@given(IDS, st.text(max_size=8))
def test_a_new_case_moves_no_other(ids: list[str], new: str) -> None:
    """The others keep their order."""
    assert [i for i in seeded_shuffle("lot", {*ids, new}) if i != new] == [
        i for i in seeded_shuffle("lot", ids) if i != new
    ]


def test_another_seed_is_another_lot() -> None:
    """Among a thousand ids two orders are never the same."""
    ids = [str(i) for i in range(1000)]

    assert seeded_shuffle("lot 1", ids) != seeded_shuffle("lot 2", ids)
