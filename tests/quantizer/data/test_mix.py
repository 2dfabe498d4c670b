"""Traces among the data: what is learned of them, how many there are, what the artefact says, and what is refused."""

import json
from pathlib import Path
from typing import Any

import pytest

INSTALL = "needs the quantizer extra: pip install -e '.[quantizer]'"
pytest.importorskip("torch", reason=INSTALL)
pytest.importorskip("transformers", reason=INSTALL)

from app.__main__ import main  # noqa: E402
from quantizer.core.errors import DataError, RecipeError  # noqa: E402
from quantizer.data.conversation import file_digest  # noqa: E402
from quantizer.data.dataset import Dataset, load_dataset  # noqa: E402
from quantizer.data.mix import Mix, mixed, read_mix  # noqa: E402
from quantizer.data.render import Renderer, TrainingSample, open_renderer  # noqa: E402
from tests.quantizer import folders, templates, tiny  # noqa: E402
from tests.quantizer.templates import said, write  # noqa: E402

pytestmark = pytest.mark.torch
WORDS = ["one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"]


@pytest.fixture(scope="module")
def renderer(tmp_path_factory: pytest.TempPathFactory) -> Renderer:
    return open_renderer(templates.folder(tmp_path_factory.mktemp("model") / "nano", "nano"))


def trace(number: int, length: int = 20) -> dict[str, Any]:
    thought = " ".join(WORDS[(number + i) % 10] for i in range(length))
    return {
        "messages": [
            said("user", f"Count from {number}."),
            said("assistant", "Done.", reasoning_content=thought),
        ]
    }


def data(renderer: Renderer, folder: Path, rows: int = 20) -> Dataset:
    short = [
        {"messages": [said("user", f"Hello {i}!"), said("assistant", "Hello, how are you?")]}
        for i in range(rows)
    ]
    return load_dataset(write(folder / "data.jsonl", short), renderer, max_tokens=999)


def mix(
    renderer: Renderer, made: Dataset, file: Path, share: float, seed: int = 1, max_tokens: int = 999
) -> Dataset:
    return mixed(made, Mix(file, share), renderer, max_tokens=max_tokens, seed=seed)


def learned(renderer: Renderer, sample: TrainingSample) -> str:
    return str(renderer.tokenizer.decode(sample.ids[sample.learned]))


@pytest.mark.parametrize("share", [0.1, 0.3, 0.5])
def test_the_share_is_of_what_is_learned(renderer: Renderer, tmp_path: Path, share: float) -> None:
    plain = data(renderer, tmp_path, 60)
    made = mix(renderer, plain, write(tmp_path / "t.jsonl", [trace(i) for i in range(40)]), share)
    got = made.mix["assistant_tokens"] / made.learned
    assert abs(got - share) < 0.04 and made.learned == plain.learned + made.mix["assistant_tokens"]
    assert len(made.samples) == len(plain.samples) + made.mix["samples"]


def test_thought_and_answer_are_learned_and_the_question_is_not(renderer: Renderer, tmp_path: Path) -> None:
    made = mix(renderer, data(renderer, tmp_path), write(tmp_path / "t.jsonl", [trace(3)] * 30), 0.2)
    (sample, *_) = [s for s in made.samples if "four five" in renderer.tokenizer.decode(s.ids)]
    text = learned(renderer, sample)
    assert "three four five" in text and "</think>" in text and "Done." in text and "Count from" not in text


@pytest.mark.parametrize(
    ("rows", "share", "told"),
    [
        (
            [trace(1), {"messages": [said("user", "Hi."), said("assistant", "Hello.")]}],
            0.1,
            "t.jsonl:2: has no thought",
        ),
        ([trace(1)], 0.9, "tokens of traces are too few"),
        ([{**trace(1), "chat_template_kwargs": {"enable_thinking": False}}], 0.1, "t.jsonl:1"),
        (["{"], 0.1, "t.jsonl:1: not JSON"),
        ([], 0.1, "too few"),
    ],
)
def test_traces_that_cannot_be_used_are_one_line(
    rows: list[Any], share: float, told: str, renderer: Renderer, tmp_path: Path
) -> None:
    with pytest.raises(DataError) as caught:
        mix(renderer, data(renderer, tmp_path), write(tmp_path / "t.jsonl", rows), share)
    assert told in str(caught.value) and "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "text", ["t.jsonl", "t.jsonl:", ":0.2", "t.jsonl:0", "t.jsonl:1", "t.jsonl:nan", "t.jsonl:a"]
)
def test_an_option_that_says_no_share_is_refused(text: str) -> None:
    with pytest.raises(RecipeError, match="FILE:SHARE"):
        read_mix(text)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("models")
    folders.save(tiny.qwen3, made / "qwen3")
    short = [
        {"messages": [said("user", f"Hello {i}!"), said("assistant", "Hello, how are you?")]}
        for i in range(12)
    ]
    write(made / "data.jsonl", short)
    write(made / "traces.jsonl", [trace(i) for i in range(12)])
    return made


@pytest.mark.usefixtures("one_thread")
@pytest.mark.parametrize("verb", ["qat", "qad", "sft"])
def test_an_artefact_says_what_was_mixed_in(
    verb: str, place: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sources = ["--source", str(place / "qwen3"), "--data", str(place / "data.jsonl"), "--device", "cpu"]
    more = [
        "--mix",
        f"{place / 'traces.jsonl'}:0.4",
        "--out",
        str(tmp_path / "out"),
        "--set",
        "train.max_steps=2",
    ]
    assert main(["quantize", verb, *sources, *more, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)["data"]
    manifest = json.loads((tmp_path / "out" / "artefact.json").read_text())
    assert told == manifest["recipe"]["outcome"]["data"]
    found = told["mix"]
    assert found["digest"] == file_digest(place / "traces.jsonl") and found["share"] == 0.4
    assert abs(found["assistant_tokens"] / told["assistant_tokens"] - 0.4) < 0.1
    assert manifest["data_digest"] == file_digest(place / "data.jsonl")


def test_traces_and_a_recipe_that_teaches_not_to_think_do_not_go_together(
    place: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sources = ["--source", str(place / "qwen3"), "--data", str(place / "data.jsonl"), "--device", "cpu"]
    more = [
        "--mix",
        f"{place / 'traces.jsonl'}:0.4",
        "--out",
        str(tmp_path / "out"),
        "--recipe",
        "qat_no_think",
    ]
    assert main(["quantize", "qat", *sources, *more]) == 78
    assert "leave one out" in capsys.readouterr().err
