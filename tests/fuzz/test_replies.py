"""Random replies with CI's budget: the same ones every time. Longer, and others: `make fuzz`."""

import pytest

from app.stream import parser
from tests.fuzz.replies import search
from tests.scale import scaled

REPLIES = scaled(400, 50_000)


def test_no_secret_of_a_random_reply_is_heard_and_no_cut_changes_it() -> None:
    count, found = search(3600, seed=1, limit=REPLIES)
    assert count == REPLIES and not found, "\n".join(found.values())


def test_a_planted_fault_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parser, "may_become", lambda text, at: False)
    _, found = search(3600, seed=1, limit=60)
    assert found
