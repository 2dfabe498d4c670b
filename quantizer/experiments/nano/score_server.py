"""Score a GGUF file as a caller meets it: through llama.cpp's server, over HTTP, on held-out cases."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from quantizer.experiments.nano.cases import Case, Reply, judge, table
from quantizer.experiments.nano.conversation import Call
from quantizer.experiments.nano.serving import post, serving

SLOTS = 4


def request(case: Case, max_tokens: int = 200) -> dict[str, Any]:
    """The chat request of a case: greedy, and thinking said aloud either way."""
    body: dict[str, Any] = {
        "messages": case.messages,
        "temperature": 0,
        "max_tokens": max_tokens,
        "chat_template_kwargs": {"enable_thinking": case.thinking},
    }
    if case.tools:
        body |= {"tools": case.tools, "parallel_tool_calls": True}
    return body


def reply_of(response: dict[str, Any]) -> Reply:
    """A server's response as a reply; arguments that are no JSON stay text and so are wrong."""
    choice = response["choices"][0]
    message = choice["message"]
    calls = tuple(
        Call(call["function"]["name"], _arguments(call["function"]["arguments"]))
        for call in message.get("tool_calls") or []
    )
    thought = message.get("reasoning_content") or ""
    return Reply(message.get("content") or "", thought, calls, choice["finish_reason"] != "length")


def _arguments(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


def score_file(path: Path, asked: list[Case]) -> tuple[dict[str, tuple[int, int]], list[tuple[Case, Reply]]]:
    """The table of manners, and the cases in which one was missed. Only hermes cases: the file
    carries the hermes template."""
    asked = [case for case in asked if case.style == "hermes"]
    with serving(path, SLOTS) as base, ThreadPoolExecutor(SLOTS) as pool:
        send = lambda case: reply_of(post(base, "/v1/chat/completions", request(case)))  # noqa: E731
        got = list(zip(asked, pool.map(send, asked), strict=True))
    judged = [judge(case, reply) for case, reply in got]
    missed = [pair for pair, marks in zip(got, judged, strict=True) if not all(marks.values())]
    return table(judged), missed
