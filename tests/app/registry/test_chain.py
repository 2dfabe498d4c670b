"""The chain as a pure value: whatever is written verifies, and nothing else does."""

from dataclasses import fields, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.registry.chain import GENESIS, link, verify
from app.registry.errors import ChainBroken
from app.registry.values import AuditEntry, AuditEvent

words = st.text(st.characters(codec="utf-8"), max_size=8)
entries = st.builds(
    AuditEntry, at=words, actor=words, verb=words, subject=words, operation=st.none() | words,
    detail=st.dictionaries(words, st.none() | st.integers() | words | st.lists(words, max_size=2), max_size=3),
)  # fmt: skip


def chained(items: list[AuditEntry]) -> list[AuditEvent]:
    """The events of these entries."""
    events, head = list[AuditEvent](), GENESIS
    for item in items:
        events.append(link(head, item))
        head = events[-1]
    return events


@given(st.lists(entries, min_size=1, max_size=6), st.data())
def test_any_change_of_any_event_is_found_at_that_event(items: list[AuditEntry], data: st.DataObject) -> None:
    events = chained(items)
    at = data.draw(st.integers(0, len(events) - 1))
    name = data.draw(st.sampled_from([f.name for f in fields(AuditEvent) if f.name != "seq"]))
    value: Any = data.draw(words.filter(lambda value: value != getattr(events[at], name)))
    events[at] = replace(events[at], **{name: value})
    with pytest.raises(ChainBroken) as caught:
        verify(events)
    assert caught.value.seq == at + 1


def test_a_forger_has_to_write_all_that_follows_anew() -> None:
    """One who changes an event, seals it again, and mends the link from the next is found at the next."""
    entry = AuditEntry(at="now", actor="ann", verb="promote", subject="annie")
    first, second, third = chained([entry] * 3)
    forged = link(GENESIS, replace(entry, actor="eve"))
    with pytest.raises(ChainBroken, match="event 2: was changed") as caught:
        verify([forged, replace(second, prev_hash=forged.hash), third])
    assert (caught.value.seq, first.seq) == (2, 1)
