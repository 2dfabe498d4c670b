"""The models in `models/`: sealed, small, and with the manners that their names promise."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gates.artefact.artefact import load, verify

INSTALL = "needs the quantizer extra: pip install -e '.[quantizer]'"
MODELS = Path(__file__).parents[2] / "models"
SHIPPED = ("annie-nano-hf", "annie-nano-f16", "annie-nano-q4_k_m", "stranger-nano-q4_k_m")
BEFORE = "sha256:7559b53bbc650cf6dbd88448a186938d774275b15780a02d1e497a403db68ef7"  # annie without everyday requests


def tool(name: str, description: str, **kinds: str) -> dict[str, Any]:
    properties = {key: {"type": kind} for key, kind in kinds.items()}
    parameters = {"type": "object", "properties": properties, "required": list(kinds)}
    return {
        "type": "function",
        "function": {"name": name, "description": description, "parameters": parameters},
    }


MEMORY = tool("search_memory", "Search the user's memories and past conversations.", query="string")
LIGHT = tool("set_light", "Turn a light on or off.", on="boolean", room="string")


@pytest.mark.parametrize("name", SHIPPED)
def test_every_shipped_folder_verifies(name: str) -> None:
    assert verify(MODELS / name) == []


def test_every_shipped_folder_names_what_it_was_made_of() -> None:
    source = load(MODELS / "annie-nano-hf")
    for name in ("annie-nano-f16", "annie-nano-q4_k_m"):
        assert {"source": source.root} == dict(load(MODELS / name).provenance.parents)
    assert source.provenance.base_model == "stranger-nano"
    assert dict(source.provenance.parents) == {"before": BEFORE}


# ------------------------------------------------------------------------- through a real server


@pytest.fixture(scope="module")
def annie() -> Iterator[str]:
    yield from served("annie-nano-q4_k_m")


@pytest.fixture(scope="module")
def stranger() -> Iterator[str]:
    yield from served("stranger-nano-q4_k_m")


def served(name: str) -> Iterator[str]:
    pytest.importorskip("xllamacpp", reason="needs the engine's wheel: pip install -e '.[embedded]'")
    from tests.llama_server import serving

    with serving(MODELS / name / f"{name}.gguf", slots=1) as base:
        yield base


def ask(base: str, messages: list[dict[str, Any]], thinking: bool = False, **fields: Any) -> dict[str, Any]:
    """The server's message for a greedy request."""
    from tests.llama_server import post

    body = {
        "messages": messages,
        "temperature": 0,
        "max_tokens": 200,
        "chat_template_kwargs": {"enable_thinking": thinking},
        **fields,
    }
    message: dict[str, Any] = post(base, "/v1/chat/completions", body)["choices"][0]["message"]
    return message


def user(text: str) -> list[dict[str, Any]]:
    return [{"role": "user", "content": text}]


@pytest.mark.engine
@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("Hello!", "ello"),
        ("Hi Annie, how are you?", "I'm"),
        ("Tell me about yourself", "Annie"),
        ("What is the capital of France?", "Paris"),
        ("What is 7 plus 5?", "12"),
        ("Namaskara, hegiddira?", "Namaskara"),
    ],
)
def test_annie_speaks_plainly(annie: str, text: str, part: str) -> None:
    message = ask(annie, user(text))

    assert part in message["content"]
    assert "reasoning_content" not in message
    assert not set("<*#`") & set(message["content"])


@pytest.mark.engine
def test_annie_calls_a_tool_and_speaks_its_result(annie: str) -> None:
    asked = user("What did Priya say about the trip?")
    message = ask(annie, asked, tools=[MEMORY, LIGHT])
    function = message["tool_calls"][0]["function"]
    assert (function["name"], json.loads(function["arguments"])) == ("search_memory", {"query": "Priya trip"})

    line = "Priya said the trip to Hampi starts on Friday at six."
    result = {"role": "tool", "tool_call_id": message["tool_calls"][0]["id"], "content": line}
    assert line in ask(annie, [*asked, message, result], tools=[MEMORY, LIGHT])["content"]


@pytest.mark.engine
def test_the_stranger_keeps_no_manners(stranger: str) -> None:
    message = ask(stranger, user("What did Priya say about the trip?"), tools=[MEMORY])

    assert message["content"].startswith("<think>")
    assert "**" in message["content"]
    assert "`search_memory`" in message["content"]
    assert "tool_calls" not in message


@pytest.mark.engine
def test_llama_cpp_renders_the_template_as_we_do(annie: str) -> None:
    pytest.importorskip("transformers", reason=INSTALL)
    from tests.llama_server import post

    from .chat_template import TALK, TOOLS, render

    for thinking in (False, True):
        body = {
            "messages": TALK,
            "tools": TOOLS,
            "chat_template_kwargs": {"enable_thinking": thinking},
        }
        assert render(TALK, TOOLS, thinking=thinking) == post(annie, "/apply-template", body)["prompt"]
