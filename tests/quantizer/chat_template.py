"""The chat templates of annie-nano, rendered by transformers, and a conversation with every kind of message."""

from functools import cache
from pathlib import Path
from typing import Any

import pytest

INSTALL = "needs the quantizer extra: pip install -e '.[quantizer]'"
transformers = pytest.importorskip("transformers", reason=INSTALL)

ANNIE = Path(__file__).parents[2] / "models" / "annie-nano-hf"


@cache
def tokenizer() -> Any:
    return transformers.AutoTokenizer.from_pretrained(ANNIE)


def render(messages: Any, tools: Any = None, style: str = "hermes", thinking: object = False) -> str:
    """The prompt of a request, by the shipped template of a call style."""
    text: str = tokenizer().apply_chat_template(
        messages, tools=tools, chat_template=tokenizer().get_chat_template("xml") if style == "xml" else None,
        add_generation_prompt=True, tokenize=False, enable_thinking=thinking,
    )  # fmt: skip
    return text


TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "search_memory",
            "description": "Search memory.",
            "parameters": {
                "type": "object",
                "properties": {"query": {"type": "string"}, "limit": {"type": "integer"}},
                "required": ["query"],
            },
        },
    },
    {
        "type": "function",
        # llama.cpp adds an empty description where there is none, so both tools have one.
        "function": {"name": "set_light", "description": "A light.", "parameters": {"type": "object"}},
    },
]


def call(name: str, arguments: Any) -> dict[str, Any]:
    return {"id": "call_0", "type": "function", "function": {"name": name, "arguments": arguments}}


TALK: list[dict[str, Any]] = [
    {"role": "system", "content": "You are Annie."},
    {"role": "user", "content": "What is the capital of France?"},
    {"role": "assistant", "content": "Paris.", "reasoning_content": "An old thought."},
    {"role": "user", "content": "ನಮಸ್ಕಾರ, and the light?"},
    {
        "role": "assistant",
        "content": "",
        "reasoning_content": "Two calls.",
        "tool_calls": [
            call("search_memory", {"query": "Priya trip", "limit": 3}),
            call("set_light", {"on": True, "room": "kitchen"}),
        ],
    },
    {"role": "tool", "content": "On Friday."},
    {"role": "tool", "content": '{"ok": true}'},
]
