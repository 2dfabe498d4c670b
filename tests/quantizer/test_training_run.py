"""A whole run: from a folder and conversations to a sealed folder that computes what was trained, whatever comes between."""

import json
from pathlib import Path
from typing import Any

import pytest

INSTALL = "needs the quantizer extra: pip install -e '.[quantizer]'"
torch = pytest.importorskip("torch", reason=INSTALL)
pytest.importorskip("transformers", reason=INSTALL)

from quantizer.core.checkpoint import Checkpoints  # noqa: E402
from quantizer.core.errors import CheckpointError, DataError, ExportError, QuantizerError, RecipeError  # noqa: E402
from quantizer.recipes.recipe import load_recipe  # noqa: E402
from quantizer.train.run import run  # noqa: E402
from tests.quantizer import folders, tiny  # noqa: E402
from tests.quantizer.learners import silent  # noqa: E402

pytestmark = [pytest.mark.torch, pytest.mark.usefixtures("one_thread")]
SHORT = (
    "train.max_steps=4",
    "train.batch_tokens=2048",
    "train.micro_tokens=1024",
    "train.save=2",
    "train.lr=1e-3",
)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Sources and data that all tests read."""
    return folders.with_data(tmp_path_factory.mktemp("models"), 10)


def train(
    place: Path, out: Path, name: str = "qat", build: Any = tiny.qwen3, *more: str, **options: Any
) -> Any:
    recipe = load_recipe(name, [*SHORT, *more])
    options = {"now": folders.NOW, "device": "cpu", "log": silent, **options}
    return run(recipe, place / build.__name__, options.pop("data", place / "data.jsonl"), out, **options)


def test_an_export_that_fails_costs_no_training(
    place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from quantizer.train import run as module

    def full(*_: Any, **__: Any) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(module, "write_nvfp4", full)
        with pytest.raises(ExportError, match="No space left on device"):
            train(place, tmp_path / "out")
        assert sorted(path.name for path in tmp_path.iterdir()) == ["out.tensorboard", "out.training"]

    told: list[str] = []
    train(place, tmp_path / "out", resume=True, log=told.append)
    assert told[-1] == "going on after step 4 of 4"


BAD: list[tuple[str, dict[str, Any], type[QuantizerError], str]] = [
    ("a pattern without a match", {"more": ["layers.exclude=['*experts*']"]}, RecipeError, "matches no layer"),
    ("adapters for nothing", {"name": "qat_lora", "more": ["lora.targets=['x']"]}, RecipeError, "matches no quantized"),
    ("a recipe that trains nothing", {"name": "default", "short": ()}, RecipeError, "trains nothing: run it with"),
    ("no row fits", {"more": ["train.max_tokens=16"]}, DataError, "holds no sample that can be used"),
]  # fmt: skip


@pytest.mark.parametrize("options, kind, words", [case[1:] for case in BAD], ids=[case[0] for case in BAD])
def test_bad_input_is_one_line_and_leaves_nothing(
    place: Path, tmp_path: Path, options: dict[str, Any], kind: type[QuantizerError], words: str
) -> None:
    recipe = load_recipe(options.get("name", "qat"), [*options.get("short", SHORT), *options.get("more", [])])
    with folders.nothing_left(tmp_path), pytest.raises(kind, match=words) as caught:
        run(
            recipe,
            place / "qwen3",
            place / "data.jsonl",
            tmp_path / "out",
            now=folders.NOW,
            device="cpu",
            log=silent,
        )

    assert "\n" not in str(caught.value)


# -------------------------------------------------------------------------------------------- checkpoints


def test_a_checkpoint_is_whole_or_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    saved = Checkpoints(tmp_path / "run", lambda: {"recipe": 1})
    saved.save({"step": 2, "x": torch.ones(3)})

    def full(*_: Any, **__: Any) -> None:
        raise RuntimeError("[enforce fail at inline_container.cc:820] . PytorchStreamWriter failed\nmore")

    with monkeypatch.context() as patch:
        patch.setattr(torch, "save", full)
        with pytest.raises(CheckpointError, match=r"cannot be written \(.*failed\); make room") as caught:
            saved.save({"step": 4})

    assert "\n" not in str(caught.value)
    assert sorted(path.name for path in saved.folder.iterdir()) == ["run.json", "step-00000002"]
    state = saved.begin(resume=True)
    assert state is not None and state["step"] == 2 and torch.equal(state["x"], torch.ones(3))


@pytest.mark.parametrize("cut", [0, 10, 300])
def test_a_damaged_checkpoint_is_one_line(tmp_path: Path, cut: int) -> None:
    saved = Checkpoints(tmp_path / "run", dict)
    saved.save({"step": 2, "x": torch.ones(3)})
    path = saved.folder / "step-00000002" / "rank-0.pt"
    path.write_bytes(path.read_bytes()[:cut])
    with pytest.raises(CheckpointError, match=r"rank-0\.pt: is damaged \(.*remove the folder") as caught:
        saved.begin(resume=True)

    assert "\n" not in str(caught.value)


# ---------------------------------------------------------------------------------------- the command


def test_the_command_trains_and_tells(
    place: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from app.__main__ import main

    changes = [flag for change in SHORT for flag in ("--set", change)]
    given = [
        "--source",
        str(place / "qwen3"),
        "--data",
        str(place / "data.jsonl"),
        "--device",
        "cpu",
        *changes,
    ]

    assert main(["quantize", "qat", *given, "--out", str(tmp_path / "one")]) == 0
    out, err = capsys.readouterr()
    assert "4 steps, loss" in out and "equal logits at" in out and "to the bit" in out
    assert "10 conversations" in err and "step 4/4 loss" in err
    assert main(["quantize", "sft", *given, "--out", str(tmp_path / "two"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["format"] == "hf-bf16"
