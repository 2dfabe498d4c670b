"""The parser's work is linear in the text, for each marker: counted in calls and in characters that wait to be read again."""

import sys
from types import FrameType

import pytest

from app.stream.parser import Parser
from app.stream.pipeline import _Choice
from gates.contracts import markers
from gates.reply.events import Finish, Text
from tests.app.stream.parse import policy_for

MARKERS = [
    *markers.spellings(), "<function=now>", "<parameter=city>", '<invoke name="now">', "◁think▷", "◁/think▷", "&lt;think&gt;", "<", "&", "[", "◁", "`", "```\n", "~~~\n", "{", "\n{", "\n[{",
    '\n{"name":\n', '<tool_call>{"name": "now", "arguments": {"a": "', '"<think>', "`<think>", "a <think> b ", "**", "\n- ", "\n",
]  # fmt: skip
SIZES = 500, 2000, 8000
PIECE = 64


def steps(text: str, monkeypatch: pytest.MonkeyPatch) -> int:
    """Calls of functions, and characters that are undecided at each read, until the reply is over."""
    count, run = 0, Parser._run

    def counted(self: Parser, final: bool) -> None:
        nonlocal count
        count += len(self._buf)
        run(self, final)

    def profile(frame: FrameType, event: str, _: object) -> None:
        nonlocal count
        count += event.endswith("call")

    monkeypatch.setattr(Parser, "_run", counted)
    choice = _Choice(policy_for("qwen", ["now"], False, 0))
    sys.setprofile(profile)
    try:
        for at in range(0, len(text), PIECE):
            choice.feed(Text(0, text[at : at + PIECE]))
        choice.feed(Finish(0, "stop"))
    finally:
        sys.setprofile(None)
    monkeypatch.undo()
    return count


@pytest.mark.parametrize("behind", ["", "plain words without an end "])
def test_work_is_linear_for_each_marker(behind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for marker in MARKERS:
        texts = [(marker * size if not behind else marker + behind * size)[:size] for size in SIZES]
        small, middle, large = (steps(text, monkeypatch) for text in texts)
        assert large - middle <= 5 * (middle - small) + 5000, (marker, small, middle, large)
