"""The chat templates of annie-nano: golden texts for each switch, and what callers may send."""

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


CLOSED_THOUGHT = "<think>\n\n</think>\n\n"
GOLDEN = Path(__file__).parent / "golden"
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


GREETING: list[dict[str, Any]] = [{"role": "user", "content": "Namaskara!"}]
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
GOLDENS: dict[str, tuple[list[dict[str, Any]], list[dict[str, Any]] | None, str, bool]] = {
    "greeting-off": (GREETING, None, "hermes", False),
    "greeting-on": (GREETING, None, "hermes", True),
    "greeting-tools-hermes": (GREETING, TOOLS, "hermes", False),
    "greeting-tools-xml": (GREETING, TOOLS, "xml", False),
    "talk-hermes-off": (TALK, TOOLS, "hermes", False),
    "talk-hermes-on": (TALK, TOOLS, "hermes", True),
    "talk-xml-off": (TALK, TOOLS, "xml", False),
    "talk-xml-on": (TALK, TOOLS, "xml", True),
}


@pytest.mark.parametrize("name", GOLDENS)
def test_the_rendered_text_is_the_golden_text(name: str) -> None:
    messages, tools, style, thinking = GOLDENS[name]

    assert (GOLDEN / f"{name}.txt").read_text(encoding="utf-8") == render(
        messages, tools, style=style, thinking=thinking
    )


@pytest.mark.parametrize("value", ["false", "true", 0, 1, None])
def test_only_the_boolean_true_opens_a_thought(value: object) -> None:
    assert render(GREETING, thinking=value).endswith(CLOSED_THOUGHT)


def test_a_thought_inside_the_content_of_an_old_turn_is_dropped() -> None:
    messages = [
        {"role": "user", "content": "Hi"},
        {"role": "assistant", "content": "<think>\nsecret\n</think>\n\nHello!"},
        {"role": "user", "content": "Bye"},
    ]

    assert "<|im_start|>assistant\nHello!<|im_end|>" in render(messages)
    assert "secret" not in render(messages)
