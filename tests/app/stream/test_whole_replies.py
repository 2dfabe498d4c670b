"""Engines that answer with one JSON object, although they were asked to stream."""

import json
from typing import Any

import pytest

from app.api.surface import MessageCollector
from app.stream.holdback import UNBOUNDED
from app.stream.pipeline import Pipeline, StreamPolicy
from gates.reply import chunks
from gates.reply.events import Broken
from tests.app.stream.wire import HEAD, policy


def whole(message: dict[str, Any], finish: str = "stop", **more: Any) -> bytes:
    choice = {"index": 0, "message": {"role": "assistant", **message}, "finish_reason": finish}
    return json.dumps({"id": "x", "object": "chat.completion", "choices": [choice], **more}).encode()


def hear(payload: bytes, rules: StreamPolicy) -> dict[str, Any]:
    collector = MessageCollector(HEAD)
    collector.feed(events := Pipeline(rules).feed_message(payload))
    if isinstance(broken := events[-1], Broken):
        return {"error": broken.code}
    reply: dict[str, Any] = json.loads(collector.message())
    return reply


CASES: dict[str, tuple[bytes, StreamPolicy, str, str]] = {
    "01 V#53284 the answer as reasoning, content null": (
        whole({"content": None, "reasoning": "Two."}), policy(guard=UNBOUNDED, reasoning_is_answer=True), "Two.", "stop",
    ),
    "03 a closing tag only": (whole({"content": "R</think>\n\nA"}), policy(guard=UNBOUNDED), "A", "stop"),
    "11 a raw hermes call": (
        whole({"content": '<tool_call>\n{"name": "now", "arguments": {}}\n</tool_call>'}), policy(), "", "tool_calls",
    ),
    "22 V#22975 an XML call left in the content": (
        whole({"content": "<tool_call>\n<function=now>\n</function>\n</tool_call>"}), policy(), "", "tool_calls",
    ),
    "nulls everywhere, as vLLM writes them": (
        whole({"content": "Hi.", "refusal": None, "tool_calls": None, "reasoning": None, "audio": None}), policy(), "Hi.", "stop",
    ),
}  # fmt: skip


@pytest.mark.parametrize("payload, rules, content, finish", CASES.values(), ids=CASES.keys())
def test_a_whole_reply_takes_the_same_road(
    payload: bytes, rules: StreamPolicy, content: str, finish: str
) -> None:
    choice = hear(payload, rules)["choices"][0]
    assert (choice["message"]["content"] or "", choice["finish_reason"]) == (content, finish)


def test_usage_comes_through_unchanged() -> None:
    usage = {"prompt_tokens": 3, "completion_tokens": 2, "prompt_tokens_details": {"cached_tokens": 1}}
    assert hear(whole({"content": "Hi."}, usage=usage), policy())["usage"] == usage


@pytest.mark.parametrize("struct, at", [(chunks._Chunk, 0), (chunks._Choice, 1), (chunks._Delta, 2)])
def test_no_field_that_is_read_is_dropped_on_the_short_way(struct: Any, at: int) -> None:
    for name in set(struct.__struct_fields__) - {"choices", "delta", "index", "content", "object"}:
        levels: list[dict[str, Any]] = [{}, {"index": 0}, {"content": "a"}]
        levels[at][name] = "x"
        said = {"choices": [{**levels[1], "delta": levels[2]}], **levels[0]}
        assert chunks.plain_text(json.dumps(said).encode()) is None, name
