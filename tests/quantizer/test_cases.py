"""The scoring of held-out cases: what counts as kept and what as broken."""

from __future__ import annotations

import pytest

INSTALL = "needs the quantizer extra: pip install -e '.[quantizer]'"
pytest.importorskip("jinja2", reason=INSTALL)

from quantizer.experiments.nano.cases import HeldOutCase, ModelReply, has_markdown, judge, read_reply, table  # noqa: E402
from quantizer.experiments.nano.conversation import ExpectedToolCall  # noqa: E402

LIGHT = ExpectedToolCall("set_light", {"on": True, "room": "hall"})
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "set_light",
            "parameters": {
                "type": "object",
                "properties": {"on": {"type": "boolean"}, "room": {"type": "string"}},
            },
        },
    }
]


def case(**changes: object) -> HeldOutCase:
    plain = {
        "id": "x",
        "group": "fact",
        "messages": [],
        "tools": TOOLS,
        "thinking": False,
        "style": "hermes",
        "calls": (),
        "must": ("Paris",),
    }
    return HeldOutCase(**(plain | changes))  # type: ignore[arg-type]


@pytest.mark.parametrize("text", ["**Paris**", "# Paris", "- Paris", "1. Paris", "`x`", "a\n* b", "[x](y)"])
def test_markdown_is_seen(text: str) -> None:
    """Signs that a voice would have to read out."""
    assert has_markdown(text)


@pytest.mark.parametrize(
    "text", ["It is -1 degrees.", "3 * 4", "At 6. Then home.", "C# is a key.", "2.5 cups"]
)
def test_plain_speech_is_not_markdown(text: str) -> None:
    """Numbers, minus signs and sharps are speech."""
    assert not has_markdown(text)


def test_a_right_answer_keeps_everything() -> None:
    """The key may be in any case."""
    assert {True} == set(judge(case(), ModelReply("It is PARIS.")).values())


@pytest.mark.parametrize(
    ("reply", "broken"),
    [
        (ModelReply("<think>\nhm\n</think>\n\nParis"), {"no leak"}),
        (ModelReply("Paris", thought="hm"), {"no leak"}),
        (ModelReply("**Paris**"), {"no markdown"}),
        (ModelReply("Rome"), {"fact"}),
        (ModelReply(""), {"fact"}),
        (ModelReply("Paris", calls=(LIGHT,)), {"fact", "no needless call"}),
        (ModelReply("Paris and so on", finished=False), {"finished"}),
    ],
)
def test_each_breach_has_its_name(reply: ModelReply, broken: set[str]) -> None:
    """One broken manner does not hide or break another."""
    assert broken == {name for name, kept in judge(case(), reply).items() if not kept}


@pytest.mark.parametrize(
    ("reply", "right"),
    [
        (ModelReply("", calls=(LIGHT,)), True),
        (ModelReply("Sure.", calls=(LIGHT,)), False),
        (ModelReply("", calls=(ExpectedToolCall("set_light", {"on": "true", "room": "hall"}),)), False),
        (ModelReply("", calls=(LIGHT, LIGHT)), False),
        (ModelReply("I would use `set_light`."), False),
    ],
)
def test_a_call_is_right_only_exactly(reply: ModelReply, right: bool) -> None:
    """Name, arguments and their types, number of calls, and no words beside them."""
    assert right is judge(case(group="call", calls=(LIGHT,), must=()), reply)["call"]


def test_raw_hermes_text_is_read() -> None:
    """Thought, call and nothing else."""
    text = 'I should.\n</think>\n\n<tool_call>\n{"name": "set_light", "arguments": {"on": true, "room": "hall"}}\n</tool_call>'

    assert ModelReply("", "I should.", (LIGHT,)) == read_reply(text, case(thinking=True))


def test_raw_xml_text_is_read_by_the_schema() -> None:
    """`true` is a boolean where the schema says so, and text where it does not."""
    text = (
        "<tool_call>\n<function=set_light>\n<parameter=on>\ntrue\n</parameter>\n"
        "<parameter=room>\nhall\n</parameter>\n</function>\n</tool_call>"
    )

    assert read_reply(text, case(style="xml")).calls == (LIGHT,)


def test_the_table_counts_what_was_asked() -> None:
    """A manner that a case does not test is not counted for it."""
    counted = table([{"a": True, "b": False}, {"a": True}])

    assert counted == {"a": (2, 2), "b": (0, 1)}
