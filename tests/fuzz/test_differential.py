"""The differential fuzz with CI's budget: the same replies every time. Longer, and others: `make fuzz`."""

import pytest

from tests.fuzz.differential import search
from tests.scale import scaled

REPLIES = scaled(100, 20_000)
SECONDS = scaled(60, 1800)
"""Whichever is reached first."""


@pytest.mark.slow  # hundreds of replies on every cut: up to a minute
@pytest.mark.timeout(SECONDS + 300)
def test_a_reply_is_heard_alike_on_every_cut_dialect_and_surface_and_nothing_hidden_is_heard() -> None:
    count, found = search(SECONDS, seed=0, limit=REPLIES)
    assert not found, "\n".join(line for lines in found.values() for line in lines)
    assert count
