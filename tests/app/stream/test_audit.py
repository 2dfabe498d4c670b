"""What a finished reply showed of its manners."""

import pytest

from app.stream.audit import ReplyAudit
from gates.detect.live import MAX_MARKDOWN_CHARS
from gates.reply.events import CallStart, Event, Finish, Text, Thought

PLAIN = "The train leaves at ten past nine, and it takes about three hours."


def breaches(*events: Event, thinking: bool = False) -> set[str]:
    audit = ReplyAudit(thinking)
    audit.feed(events)
    return audit.breaches()


@pytest.mark.parametrize(
    "said, found",
    [
        (PLAIN, set()),
        ("It is -5 outside, and 2 * 3 * 4 is 24.", set()),
        ("Here you go:\n* milk\n* bread\n* **eggs**", {"markdown"}),
        ("Okay, the user is asking about trains. I should answer briefly. " + PLAIN, {"leak"}),
        ('<tool_call>\n{"name": "web_search", "arguments": {}}\n</tool_call>', {"raw_tool_call"}),
        (f"{PLAIN}<|im_end|>", {"broken_template"}),
        ("I will check. " * 40, {"loop"}),
        ("", {"empty"}),
        (" \n", {"empty"}),
    ],
)
def test_a_reply_is_looked_at_when_it_is_over(said: str, found: set[str]) -> None:
    assert breaches(Text(0, said), Finish(0, "stop")) >= found
    assert bool(breaches(Text(0, said), Finish(0, "stop"))) == bool(found)


def test_a_thought_that_nobody_asked_for_is_a_leak_though_it_was_stripped() -> None:
    assert breaches(Thought(0, "hm", "tag"), Text(0, PLAIN), Finish(0, "stop")) == {"leak"}
    assert breaches(Thought(0, "hm", "tag"), Text(0, PLAIN), Finish(0, "stop"), thinking=True) == set()


def test_a_dropped_call_is_a_breach_though_nobody_heard_it() -> None:
    audit = ReplyAudit(False)
    audit.feed([Text(0, PLAIN), Finish(0, "stop")])
    audit.dropped = 1
    assert audit.breaches() == {"raw_tool_call"}


def test_a_call_without_words_and_a_cut_reply_are_not_empty() -> None:
    assert breaches(CallStart(0, 0, "web_search"), Finish(0, "stop")) == set()
    assert breaches(Finish(0, "length")) == set()


def test_what_stands_far_behind_is_not_read() -> None:
    far = "".join(f"Sentence number {n} says something else. " for n in range(MAX_MARKDOWN_CHARS // 20))
    assert "markdown" not in breaches(Text(0, far + "\n\n* one\n* two"), Finish(0, "stop"))


def test_a_loop_at_the_end_of_a_long_reply_is_heard() -> None:
    far = "".join(f"Sentence number {n} says something else. " for n in range(1000))
    assert breaches(Text(0, far + "and again " * 400), Finish(0, "length")) == {"loop"}
