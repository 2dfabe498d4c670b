"""Anthropic's Messages API in terms of a chat completion: what is asked, and what is answered. Pure.

Sampling has only `temperature` there: newer models refuse `top_p` beside it, and no model takes a seed or penalties. With
thinking not even that is sent, because the API wants its default then.

A request that hands in a tool's result goes without thinking: with it, the API wants the thought of the turn back, signed,
and rows hold no signatures.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from gates.contracts import strict_json

VERSION: Final = "2023-06-01"
FEWEST_TOKENS: Final = 1024
"""The smallest thinking budget that the API takes."""

FINISH_REASONS: Final[Mapping[str, str]] = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "tool_use": "tool_calls",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "refusal": "content_filter",
}
"""By stop reason. `pause_turn` is of tools that run at the server's, of which we ask none: that reply has no end."""


def request_body(chat: Mapping[str, Any], thinking: int = 0) -> dict[str, Any]:
    """The Messages request for a chat completion request. thinking: the budget in tokens; 0: off."""
    messages = chat["messages"]
    thinks = thinking > 0 and messages[-1]["role"] != "tool"
    body: dict[str, Any] = {
        "model": chat["model"],
        "max_tokens": chat["max_tokens"] + (thinking if thinks else 0),
        "messages": list(_turns(messages)),
        "thinking": {"type": "enabled", "budget_tokens": thinking} if thinks else {"type": "disabled"},
    }
    if system := "\n\n".join(m["content"] for m in messages if m["role"] in ("system", "developer")):
        body["system"] = system
    if not thinks:
        body["temperature"] = chat["temperature"]
    if tools := chat.get("tools"):
        body["tools"] = [_tool(tool["function"]) for tool in tools]
    return body


def chat_reply(data: bytes) -> bytes:
    """The chat completion for a Messages reply. Raises ValueError if it is none."""
    reply = strict_json.loads(data)
    blocks = reply.get("content") if isinstance(reply, dict) else None
    if not isinstance(blocks, list) or not all(isinstance(block, dict) for block in blocks):
        raise ValueError("no Messages reply: it has no list of content blocks")
    message: dict[str, Any] = {"role": "assistant", "content": _joined(blocks, "text", "text")}
    if thought := _joined(blocks, "thinking", "thinking"):
        message["reasoning_content"] = thought
    calls = [_call(block) for block in blocks if block.get("type") == "tool_use"]
    if calls:
        message["tool_calls"] = calls
    reason = FINISH_REASONS.get(str(reply.get("stop_reason")))
    used = reply.get("usage") if isinstance(reply.get("usage"), dict) else {}
    usage = {"prompt_tokens": used.get("input_tokens"), "completion_tokens": used.get("output_tokens")}
    choice = {"index": 0, "message": message, "finish_reason": reason}
    return json.dumps(
        {"id": reply.get("id"), "model": reply.get("model"), "choices": [choice], "usage": usage},
        ensure_ascii=False,
    ).encode()


def _turns(messages: Sequence[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
    """User's and assistant's turns; the results of a turn's calls are one turn of the user's."""
    results: list[dict[str, Any]] = []
    for message in messages:
        if message["role"] == "tool":
            results.append(
                {"type": "tool_result", "tool_use_id": message["tool_call_id"], "content": message["content"]}
            )
            continue
        if results:
            yield {"role": "user", "content": results}
            results = []
        if message["role"] == "user":
            yield {"role": "user", "content": message["content"]}
        elif message["role"] == "assistant":
            yield {"role": "assistant", "content": _blocks(message)}
    if results:
        yield {"role": "user", "content": results}


def _blocks(message: Mapping[str, Any]) -> list[dict[str, Any]]:
    """An assistant's message. An empty text is refused by the API, and so left out."""
    said = [{"type": "text", "text": message["content"]}] if message["content"] else []
    return said + [
        {
            "type": "tool_use",
            "id": call["id"],
            "name": call["function"]["name"],
            "input": json.loads(call["function"]["arguments"] or "{}"),
        }
        for call in message.get("tool_calls", ())
    ]


def _tool(function: Mapping[str, Any]) -> dict[str, Any]:
    described = {"description": function["description"]} if function.get("description") else {}
    return {
        "name": function["name"],
        **described,
        "input_schema": function.get("parameters") or {"type": "object", "properties": {}},
    }


def _joined(blocks: Sequence[Mapping[str, Any]], kind: str, key: str) -> str:
    return "".join(str(block.get(key) or "") for block in blocks if block.get("type") == kind)


def _call(block: Mapping[str, Any]) -> dict[str, Any]:
    arguments = json.dumps(block.get("input") or {}, ensure_ascii=False)
    return {
        "id": block.get("id"),
        "type": "function",
        "function": {"name": block.get("name"), "arguments": arguments},
    }
