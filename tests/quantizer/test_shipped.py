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

TEXTS = [
    "Namaskara, hegiddira? Oota aytha?",
    "ನಮಸ್ಕಾರ, ಹೇಗಿದ್ದೀರಾ? ಮೈಸೂರು ೨೦೨೬",
    "  two spaces, a tab\t, a line\n\nand \r\n another  ",
    "naïve café, cafe\u0301, 日本語, 🙂👍🏽, \u200b",
]


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


@pytest.mark.torch
def test_transformers_loads_the_folder_and_annie_calls_a_tool() -> None:
    transformers = pytest.importorskip("transformers", reason=INSTALL)
    pytest.importorskip("torch", reason=INSTALL)
    from .test_template import render, tokenizer

    model = transformers.AutoModelForCausalLM.from_pretrained(MODELS / "annie-nano-hf")
    prompt = render([{"role": "user", "content": "What did Priya say about the trip?"}], [MEMORY], "xml")
    ids = tokenizer()(prompt, return_tensors="pt")
    made = model.generate(**ids, max_new_tokens=60, do_sample=False)
    said = tokenizer().decode(made[0][ids["input_ids"].shape[1] :], skip_special_tokens=True)
    assert said == (
        "<tool_call>\n<function=search_memory>\n<parameter=query>\nPriya trip\n"
        "</parameter>\n</function>\n</tool_call>"
    )


@pytest.mark.timeout(900)
@pytest.mark.nightly  # test_gguf_make.py writes the two GGUF files again, test_cli_ptq.py runs the command
@pytest.mark.slow  # calibrates, rounds and proves annie-nano
@pytest.mark.torch
def test_make_nano_makes_the_shipped_nvfp4_weights_again(tmp_path: Path) -> None:
    pytest.importorskip("torch", reason=INSTALL)
    from safetensors.torch import load_file

    from app.__main__ import main
    from quantizer.nano.conversations import write

    nano, rows = str(MODELS / "annie-nano-hf"), str(write(tmp_path / "rows.jsonl", 64))
    given = f"ptq --recipe mse --set calibrate.conversations=64 --source {nano} --data {rows} --device cpu"
    assert main(["quantize", *given.split(), "--out", str(tmp_path / "annie-nano-nvfp4-hf")]) == 0
    made, shipped = (load_file(p / "annie-nano-nvfp4-hf" / "model.safetensors") for p in (tmp_path, MODELS))
    assert made.keys() == shipped.keys()
    off = {name: ((tensor - shipped[name]).abs() / shipped[name].abs()).max().item() if name.endswith("input_scale")
           else 0.0 if tensor.equal(shipped[name]) else 1.0 for name, tensor in made.items()}  # fmt: skip
    assert {name: by for name, by in off.items() if by > 0.02} == {}


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
def test_annie_thinks_when_asked_to(annie: str) -> None:
    message = ask(annie, user("What is 12 plus 5 minus 3?"), thinking=True)

    assert message["reasoning_content"]
    assert "14" in message["content"]


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

    from .test_template import TALK, TOOLS, render

    for thinking in (False, True):
        body = {
            "messages": TALK,
            "tools": TOOLS,
            "chat_template_kwargs": {"enable_thinking": thinking},
        }
        assert render(TALK, TOOLS, thinking=thinking) == post(annie, "/apply-template", body)["prompt"]


@pytest.mark.engine
def test_llama_cpp_tokenizes_as_we_do(annie: str) -> None:
    tokenizers = pytest.importorskip("tokenizers", reason=INSTALL)
    from tests.llama_server import post

    ours = tokenizers.Tokenizer.from_file(str(MODELS / "annie-nano-hf" / "tokenizer.json"))
    for text in [*TEXTS, "<tool_call>\n{}\n</tool_call><|im_end|>", "don't we'll I'M 12.50"]:
        body = {"content": text, "add_special": False, "parse_special": True}
        assert ours.encode(text).ids == post(annie, "/tokenize", body)["tokens"], text
