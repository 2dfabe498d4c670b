"""What a caller hears depends on the concatenated text alone: the proof, and the corpora that judge the parser.

The state after i characters, fed the characters i to j in one piece, must be the state after j, with the same output. By
induction every cut of a reply is the same.
"""

import pickle
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from app.stream.pipeline import _Choice
from gates.reply.events import CallStart, Event, Text, Thought
from tests.app.stream.parse import fields, parse, policy_for
from tests.replies import rows, score
from tests.scale import scaled

Row = tuple[str, list[str], bool, str, str]


def corpus() -> Iterator[Row]:
    for row in rows("bank"):
        yield row["format"], row["tools"], row["json_mode"], row["reasoning"], row["content"]
    for row in rows("ordinary"):
        yield "qwen", ["now", "web_search", "set_light"], False, "", row["text"]


def merged(events: Iterable[Event]) -> list[Any]:
    """Neighbouring pieces of text as one."""
    out: list[Any] = []
    for event in events:
        kind = (type(event), getattr(event, "kind", ""))
        if type(event) in (Text, Thought) and out and out[-1][0] == kind:
            out[-1] = (kind, out[-1][1] + event.text)  # type: ignore[union-attr]
        else:
            out.append((kind, event.text if type(event) in (Text, Thought) else event))  # type: ignore[union-attr]
    return out


def state(value: Any) -> Any:
    """A stage's state as plain values: pieces joined, as their number depends on the cut."""
    if isinstance(value, list):
        if all(isinstance(item, str) for item in value):
            return "".join(value)
        return (
            merged(value)
            if value and isinstance(value[0], Text | Thought | CallStart)
            else list(map(state, value))
        )
    if hasattr(value, "__dict__") and type(value).__module__.startswith("app.stream"):
        skipped = ("_rules", "_policy", "_tools")
        return {key: state(item) for key, item in vars(value).items() if key not in skipped}
    return value


def check(row: Row, every: int) -> int:
    """Compare the states of one row at every so many positions."""
    format, tools, json_mode, reasoning, content = row
    one = fields(reasoning, content, 1)
    choice = _Choice(policy_for(format, tools, json_mode, 160))
    saved, events, counts = [pickle.dumps(choice)], [], [0]
    for event in one:
        events += choice.feed(event)
        saved.append(pickle.dumps(choice))
        counts.append(len(events))
    states = [state(pickle.loads(dump)) for dump in saved]
    checks = 0
    for i in range(0, len(one), every):
        for j in range(i + 2, len(one) + 1, every):
            other = pickle.loads(saved[i])
            made = [e for piece in joined(one[i:j]) for e in other.feed(piece)]
            assert merged(made) == merged(events[counts[i] : counts[j]]), (row, i, j)
            assert state(other) == states[j], (row, i, j)
            checks += 1
    return checks


def joined(pieces: list[Event]) -> list[Event]:
    """Each field's text in one piece."""
    out: list[Event] = []
    for piece in pieces:
        if out and type(out[-1]) is type(piece):
            out[-1] = msgspec.structs.replace(piece, text=out[-1].text + piece.text)  # type: ignore[union-attr]
        else:
            out.append(piece)
    return out


def test_the_state_after_i_characters_fed_i_to_j_is_the_state_after_j() -> None:
    checks = 0
    for number, row in enumerate(corpus()):
        size = len(row[3]) + len(row[4])
        if size <= 1500 and number % scaled(quick=6, full=1) == 0:
            checks += check(
                row, 1 if size <= scaled(quick=24, full=400) else max(2, size // scaled(quick=12, full=60))
            )
    assert checks > 10_000


def test_the_bank_of_replies_is_heard_as_it_should_be() -> None:
    wrong = score(parse, rows("bank"))
    known = {"fence between paragraphs", "first token lost"}
    new = [one for some in wrong.values() for one in some if one.row["kind"] not in known]
    assert not new, "\n".join(f"{one.row['id']} in pieces of {one.size}: {one.why}" for one in new[:20])


def test_ordinary_texts_are_handed_on_to_the_letter() -> None:
    altered = []
    for row in rows("ordinary"):
        for tools in ([], ["now", "web_search", "set_light", "get_weather"]):
            for size in (None, 1, 7):
                if parse("qwen", tools, False, "", row["text"], size) != (row["text"], []):
                    altered.append(row["id"])
    assert len(set(altered)) <= 0.02 * len(rows("ordinary")), sorted(set(altered))
