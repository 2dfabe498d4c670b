"""Reading conversations: what is wrong with a line is told with its number, and nothing is dropped without a word."""

from pathlib import Path
from typing import Any

import pytest

from quantizer.core.errors import DataError
from quantizer.data.conversation import read, thought_of
from tests.quantizer.templates import SEARCH, call, said, write

GOOD = [said("user", "Hi"), said("assistant", "Hello.")]
BAD: list[tuple[str, Any, str]] = [
    ("not JSON", "{", "not JSON"),
    ("not an object", "[1]", "a line is an object with messages"),
    ("no messages", {}, "missing required field `messages`"),
    ("no message in it", {"messages": []}, "length >= 1 - at `$.messages`"),
    ("tools under another name", {"messages": GOOD, "tool": [SEARCH]}, "did you mean 'tools'?"),
    ("tools of the old API", {"messages": GOOD, "tools_": "x"}, "did you mean 'tools'?"),
    ("an unknown expectation", {"messages": GOOD, "expect": {"answers": []}}, "expect.answers: unknown key; did you mean 'answer'?"),
    ("a message that is a text", {"messages": ["Hi"]}, "Expected `object`, got `str` - at `$.messages[0]`"),
    ("a role that nobody has", {"messages": [said("human", "Hi")]}, "Invalid enum value 'human' - at `$.messages[0].role`"),
    ("nobody answers", {"messages": GOOD[:1]}, "no message of the assistant's"),
    ("an empty answer", {"messages": [GOOD[0], said("assistant", " ")]}, "says nothing and calls nothing"),
    ("a picture", {"messages": [said("user", [{"type": "image_url"}]), GOOD[1]]}, "missing required field `text` - at `$.messages[0].content[0]`"),
    ("a number for content", {"messages": [said("user", 5), GOOD[1]]}, "got `int` - at `$.messages[0].content`"),
    ("a user who calls", {"messages": [said("user", "Hi", tool_calls=[call()])]}, "only the assistant"),
    ("calls in no list", {"messages": [said("assistant", "", tool_calls={"a": 1})]}, "got `object` - at `$.messages[0].tool_calls`"),
    ("a call without a name", {"messages": [said("assistant", "", tool_calls=[{}])]}, "missing required field `function` - at `$.messages[0].tool_calls[0]`"),
    (
        "arguments cut off",
        {"messages": [said("assistant", "", tool_calls=[{"function": {"name": "f", "arguments": "{"}}])]},
        "call 0: arguments are not JSON",
    ),
    (
        "arguments that are a list",
        {"messages": [said("assistant", "", tool_calls=[{"function": {"name": "f", "arguments": "[]"}}])]},
        "call 0: arguments must be a JSON object",
    ),
    ("a thought that is no text", {"messages": [said("assistant", "x", reasoning_content=3)]}, "got `int` - at `$.messages[0].reasoning_content`"),
    ("a tool without a name", {"messages": GOOD, "tools": [{"type": "function"}]}, "missing required field `function` - at `$.tools[0]`"),
    ("tools in no list", {"messages": GOOD, "tools": {"a": 1}}, "Expected `array`, got `object` - at `$.tools`"),
    ("tools as a broken text", {"messages": GOOD, "tools": "["}, "Expecting value"),
    ("switches in no object", {"messages": GOOD, "chat_template_kwargs": [1]}, "got `array` - at `$.chat_template_kwargs`"),
    ("a switch that is ours", {"messages": GOOD, "chat_template_kwargs": {"tools": []}}, "cannot set tools"),
]  # fmt: skip


@pytest.mark.parametrize("row, why", [case[1:] for case in BAD], ids=[case[0] for case in BAD])
def test_a_bad_line_is_told_with_its_number(tmp_path: Path, row: Any, why: str) -> None:
    path = write(tmp_path / "data.jsonl", [{"messages": GOOD}, row])
    with pytest.raises(DataError) as caught:
        list(read(path))

    assert str(caught.value).startswith(f"{path}:2")
    assert why in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_file_that_is_not_there_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"nowhere\.jsonl: cannot be read \(No such file"):
        list(read(tmp_path / "nowhere.jsonl"))


@pytest.mark.parametrize(
    "message, thought",
    [
        (said("assistant", "x", reasoning_content="why"), "why"),
        (said("assistant", "x", reasoning="why"), "why"),
        (said("assistant", "<think>why</think>x"), "<think>why"),
        (said("assistant", "x", reasoning_content="  "), ""),
        (said("assistant", "x"), ""),
    ],
)
def test_a_thought_is_found_where_writers_put_it(message: dict[str, Any], thought: str) -> None:
    assert thought_of(message) == thought
