"""The chat template: golden texts for every switch, and the properties that training leans on."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

INSTALL = "needs the quantizer extra: pip install -e '.[quantizer]'"
pytest.importorskip("jinja2", reason=INSTALL)

from quantizer.experiments.nano.template import (  # noqa: E402
    Message,
    Style,
    render,
    render_call,
    source,
)

CLOSED_THOUGHT = "<think>\n\n</think>\n\n"
OPEN_THOUGHT = "<think>\n"
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


GREETING: list[Message] = [{"role": "user", "content": "Namaskara!"}]
TALK: list[Message] = [
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
GOLDENS: dict[str, tuple[list[Message], list[dict[str, Any]] | None, Style, bool]] = {
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
    """Every switch, with and without tools, with history, calls and results."""
    messages, tools, style, thinking = GOLDENS[name]

    assert (GOLDEN / f"{name}.txt").read_text(encoding="utf-8") == render(
        messages, tools, style=style, thinking=thinking
    )


def test_thinking_off_closes_the_thought_and_on_opens_it() -> None:
    """The switch is the last thing in the prompt; absent, it is off."""
    assert render(GREETING).endswith("<|im_start|>assistant\n" + CLOSED_THOUGHT)
    assert render(GREETING, thinking=True).endswith("<|im_start|>assistant\n" + OPEN_THOUGHT)


@pytest.mark.parametrize("value", ["false", "true", 0, 1, None])
def test_only_the_boolean_true_opens_a_thought(value: object) -> None:
    """A text or a number in the switch does not make Annie think."""
    text = render(GREETING, thinking=value)  # type: ignore[arg-type]

    assert text.endswith(CLOSED_THOUGHT)


def test_old_thoughts_are_dropped_and_present_ones_kept() -> None:
    """A thought before the last user message is gone; the one in the turn at hand stays."""
    text = render(TALK, TOOLS)

    assert "An old thought." not in text
    assert "<think>\nTwo calls.\n</think>\n\n" in text


def test_a_thought_inside_the_content_of_an_old_turn_is_dropped() -> None:
    """A client that sends back `<think>…</think>` as content does not feed it to the model again."""
    messages = [
        {"role": "user", "content": "Hi"},
        {"role": "assistant", "content": "<think>\nsecret\n</think>\n\nHello!"},
        {"role": "user", "content": "Bye"},
    ]

    assert "<|im_start|>assistant\nHello!<|im_end|>" in render(messages)
    assert "secret" not in render(messages)


def test_content_in_parts_is_read_as_its_text() -> None:
    """OpenAI's list of parts renders as the plain text would."""
    parts = [{"type": "text", "text": "Nama"}, {"type": "text", "text": "skara!"}]

    assert render(GREETING) == render([{"role": "user", "content": parts}])


def test_arguments_may_come_as_json_text() -> None:
    """A caller's own history holds arguments as text; the prompt is the same."""
    as_text = json.loads(json.dumps(TALK))
    for one in as_text[4]["tool_calls"]:
        one["function"]["arguments"] = json.dumps(one["function"]["arguments"])

    assert render(TALK, TOOLS) == render(as_text, TOOLS)


def test_the_shipped_default_has_no_words_of_the_xml_parser() -> None:
    """llama.cpp takes any template with these words for Qwen3-Coder's and would miss every JSON call."""
    assert "<function=" not in source("hermes")
    assert "<parameter=" not in source("hermes")
    assert all(word in source("xml") for word in ("<tool_call>", "<function=", "<parameter="))


@pytest.mark.parametrize("style", ["hermes", "xml"])
def test_a_call_reads_the_same_when_it_comes_back(style: Style) -> None:
    """What the model writes is what the template shows it one turn later: the prompt cache holds."""
    prompt = render(TALK[:4], TOOLS, style=style, thinking=True)
    calls = "\n".join(
        render_call(c["function"]["name"], c["function"]["arguments"], style) for c in TALK[4]["tool_calls"]
    )
    written = f"Two calls.\n</think>\n\n{calls}<|im_end|>"

    assert render(TALK, TOOLS, style=style, thinking=True).startswith(prompt + written)


def test_the_shipped_templates_are_this_source() -> None:
    """The folder in models/ carries exactly these two texts."""
    folder = Path(__file__).parents[2] / "models" / "annie-nano-hf"

    assert source("hermes") == (folder / "chat_template.jinja").read_text(encoding="utf-8")
    assert source("xml") == (folder / "additional_chat_templates" / "xml.jinja").read_text(encoding="utf-8")
