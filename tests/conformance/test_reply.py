"""What the suite wants of a reply of the gateway."""

from contextlib import nullcontext
from typing import Any

import pytest

from app.conformance.checks import BOTH, LIGHT, SUM, Check, CheckFailed, Want, ask, judge
from gates.reply.reply import Reply


@pytest.mark.parametrize(
    ("want", "reply", "told"),
    [
        (Want(), {"usage": {"completion_tokens": 31}}, "14 tokens were generated"),
        (Want(), {"usage": {"completion_tokens": 19}}, ""),
        (Want(), {"reasoning": "Hm."}, "there is reasoning"),
        (Want(lacks="16"), {}, "'16' in"),
        (Want(has="17"), {}, "no '17' in"),
        (Want("length"), {"finish_reason": "length", "usage": {"completion_tokens": 9}}, "9 tokens, not 128"),
        (Want("tool_calls", calls=({"name": "set_light", "arguments": {}},)), {}, "it makes no call"),
        (Want(refused=True), {}, "status 200"),
    ],
)
def test_a_reply_is_judged_by_what_its_check_wants(want: Want, reply: dict[str, Any], told: str) -> None:
    asked = ask(BOTH, tools=[LIGHT], with_reasoning=True)
    heard = Reply(
        **{"status": 200, "content": "The answer is 16.", "finish_reason": "stop", "done": True, **reply}
    )
    with pytest.raises(CheckFailed, match=told) if told else nullcontext():
        judge(Check("", (asked,), want), [heard])


def test_all_replies_of_a_check_say_the_same() -> None:
    said = [Reply(200, content, finish_reason="stop", done=True) for content in ("9.", "9.", "Nine.")]
    with pytest.raises(CheckFailed, match="not the same twice"):
        judge(Check("", (ask(SUM),) * 3, Want()), said)
