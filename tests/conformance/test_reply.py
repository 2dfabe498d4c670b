"""What the suite reads from a reply of the gateway, and what it calls a fault."""

import json
from contextlib import nullcontext
from typing import Any

import pytest

from app.conformance.checks import BOTH, LIGHT, SUM, Check, CheckFailed, Want, ask, judge
from app.conformance.reply import ObservedReply, observed

DONE = b"data: [DONE]\n\n"


def part(delta: dict[str, Any] | None, finish: str | None = None, **more: Any) -> bytes:
    choices = [] if delta is None else [{"index": 0, "delta": delta, "finish_reason": finish}]
    head = {"id": "x", "created": 1, "model": "m", "object": "chat.completion.chunk"}
    return b"data: %b\n\n" % json.dumps({**head, "choices": choices, **more}).encode()


ROLE, SAID, END = part({"role": "assistant"}), part({"content": "Hi."}), part({}, "stop")
CALL = part({"tool_calls": [{"index": 1, "id": "c", "function": {"name": "f", "arguments": "{}"}}]})
COUNTS = part(None, usage={"prompt_tokens": 2, "completion_tokens": 3})
ERROR = b'data: {"error":{"message":"boom","code":"x"}}\n\n'


def test_a_reply_without_faults_is_read_like_any_other() -> None:
    reply = observed(200, b": ping\n\n" + ROLE + SAID + END + COUNTS + DONE)

    assert (reply.content, reply.finish_reason, reply.completion_tokens) == ("Hi.", "stop", 3)
    assert reply.done and not reply.faults


@pytest.mark.parametrize(
    "body, fault",
    [
        (ROLE + SAID + END + DONE[:-1], "inside an event"),
        (ROLE + SAID + END + DONE + SAID, "follows [DONE]"),
        (SAID + END + DONE, "0 role chunks"),
        (ROLE + part({"content": "Hi."}, id="y") + END + DONE, "id, created or model"),
        (ROLE + SAID + DONE, "without a finish_reason"),
        (ROLE + SAID + END + ERROR, "an error after"),
        (ROLE + SAID + END + SAID + DONE, "a delta follows"),
        (ROLE + SAID + END + part({}, usage={"total_tokens": 1}) + DONE, "usage elsewhere"),
        (ROLE + CALL + END + DONE, "out of order"),
    ],
)
def test_what_no_client_expects_is_a_fault(body: bytes, fault: str) -> None:
    assert any(fault in told for told in observed(200, body).faults)


def test_an_error_has_openais_envelope() -> None:
    reply = observed(400, b'{"error":{"message":"too long","code":400}}')

    assert reply.faults == ("not OpenAI's error envelope: ['message', 'code']",)
    assert reply.error and reply.error.message == "too long"


@pytest.mark.parametrize(
    ("want", "reply", "told"),
    [
        (Want(), {"usage": {"completion_tokens": 31}}, "14 tokens were generated"),
        (Want(), {"usage": {"completion_tokens": 19}}, ""),
        (Want(), {"reasoning": "Hm."}, "there is reasoning"),
        (Want(lacks="16"), {}, "'16' in"),
        (Want(has="17"), {}, "no '17' in"),
        (Want("length"), {"finish_reason": "length", "usage": {"completion_tokens": 9}}, "9 tokens, not 128"),
        (Want(thinks=True, budget=8), {"reasoning": "Hm.", "thought_tokens": 9}, "9 tokens of thought"),
        (Want("tool_calls", calls=({"name": "set_light", "arguments": {}},)), {}, "it makes no call"),
        (Want(refused=True), {}, "status 200"),
    ],
)
def test_a_reply_is_judged_by_what_its_check_wants(want: Want, reply: dict[str, Any], told: str) -> None:
    asked = ask(BOTH, tools=[LIGHT], with_reasoning=True)
    heard = ObservedReply(
        **{"status": 200, "content": "The answer is 16.", "finish_reason": "stop", "done": True, **reply}
    )
    with pytest.raises(CheckFailed, match=told) if told else nullcontext():
        judge(Check("", (asked,), want), [heard])


def test_all_replies_of_a_check_say_the_same() -> None:
    said = [ObservedReply(200, content, finish_reason="stop", done=True) for content in ("9.", "9.", "Nine.")]
    with pytest.raises(CheckFailed, match="not the same twice"):
        judge(Check("", (ask(SUM),) * 3, Want()), said)
