"""A whole run: from a folder and conversations to a sealed folder that computes what was trained, whatever comes between."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

INSTALL = "needs the quantizer extra: pip install -e '.[quantizer]'"
torch = pytest.importorskip("torch", reason=INSTALL)
pytest.importorskip("transformers", reason=INSTALL)

from gates.artefact import artefact  # noqa: E402
from quantizer.core.errors import CheckpointError, DataError, ExportError, QuantizerError, RecipeError  # noqa: E402
from quantizer.recipes.recipe import load_recipe  # noqa: E402
from quantizer.train.checkpoint import Checkpoints  # noqa: E402
from quantizer.train.run import CURVE, run  # noqa: E402
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
CASES = [
    *((tiny.qwen3, name) for name in ("qat", "lsq", "qat_lora", "qad_mix")),
    *((tiny.qwen3_5, name) for name in ("qat_no_think", "qad")),
]
RARER = ("qad_mix", "qat_no_think")
"""At night: the one adds the losses of `qad` and `qat`, the other is `qat` with an empty thought in its rows, and
tests/quantizer/test_every_recipe.py runs each in small."""


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


def curve(folder: Path) -> list[tuple[float, ...]]:
    """Every step's numbers, without the time that it took."""
    lines = map(json.loads, (folder / CURVE).read_text().splitlines())
    return [tuple(value for key, value in line.items() if key != "seconds") for line in lines]


@pytest.mark.parametrize(
    "build, name",
    [
        pytest.param(
            build,
            name,
            id=f"{build.__name__}-{name}",
            marks=[pytest.mark.nightly] if name in RARER else [],
        )
        for build, name in CASES
    ],
)
def test_every_recipe_ends_in_a_folder_that_computes_what_was_trained(
    place: Path, tmp_path: Path, build: Any, name: str
) -> None:
    made = train(place, tmp_path / "out", name, build)
    outcome = made.provenance.recipe["outcome"]
    parity = outcome["check"]["parity"]

    assert made.format == "hf-nvfp4" and artefact.verify(tmp_path / "out") == []
    assert parity["equal"] == parity["tokens"] > 100
    assert len(curve(tmp_path / "out")) == outcome["train"]["steps"] == 4
    assert outcome["train"]["loss_after"] > 0 and outcome["train"]["loss_before"] > 0
    assert outcome["data"]["conversations"] == 10 and outcome["data"]["dropped"] == {}
    assert made.provenance.data_digest is not None and outcome["peak_memory_bytes"] > 0
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


@pytest.mark.nightly  # test_two_processes.py kills two that train, which save and go on by the same code
@pytest.mark.slow  # trains three times, two of them in processes of their own: 10 s
def test_a_run_that_was_killed_goes_on_to_the_same_model(place: Path, tmp_path: Path) -> None:
    steps = ("train.max_steps=14", "train.save=1", "train.epochs=20", "train.refresh=3")
    program = (
        "import sys, torch; torch.set_num_threads(1); from pathlib import Path;"
        "from tests.quantizer.test_training_run import train, tiny;"
        f"train(Path(sys.argv[1]), Path(sys.argv[2]), 'qad', tiny.qwen3, *{steps!r})"
    )
    child = subprocess.Popen(
        [sys.executable, "-c", program, str(place), str(tmp_path / "out")],
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
        stderr=subprocess.DEVNULL,
    )
    saved = tmp_path / "out.training"
    while child.poll() is None and not [p for p in saved.glob("step-*") if p.name >= "step-00000003"]:
        time.sleep(0.01)
    child.send_signal(signal.SIGKILL)

    assert child.wait() == -signal.SIGKILL, "it ended before it could be killed"
    assert not (tmp_path / "out").exists()
    with pytest.raises(CheckpointError, match="--resume goes on, or remove the folder"):
        train(place, tmp_path / "out", "qad", tiny.qwen3, *steps)
    told: list[str] = []
    train(place, tmp_path / "out", "qad", tiny.qwen3, *steps, resume=True, log=told.append)
    train(place, tmp_path / "whole", "qad", tiny.qwen3, *steps)

    assert any(line.startswith("going on after step") for line in told)
    assert curve(tmp_path / "out") == curve(tmp_path / "whole")
    first, second = ((tmp_path / name / "model.safetensors").read_bytes() for name in ("out", "whole"))
    assert first == second
    assert not saved.exists()


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
    assert [path.name for path in tmp_path.iterdir()] == ["out.training"]

    told: list[str] = []
    train(place, tmp_path / "out", resume=True, log=told.append)
    assert told[-1] == "going on after step 4 of 4"


def broken(place: Path, tmp_path: Path, case: str) -> None:
    """Something that is wrong, as a user would do it."""
    saved = tmp_path / "out.training"
    if case.startswith("checkpoint"):
        made = Checkpoints(saved, {"recipe": "another"})
        made.save({"step": 2})
    if case == "out taken":
        (tmp_path / "out").mkdir()


BAD: list[tuple[str, dict[str, Any], type[QuantizerError], str]] = [
    ("out taken", {}, ExportError, "is there already"),
    ("checkpoint of another run", {"resume": True}, CheckpointError, r"is of another run \(data, device, .*recipe"),
    ("checkpoint and no --resume", {}, CheckpointError, "--resume goes on"),
    ("a pattern without a match", {"more": ["layers.exclude=['*experts*']"]}, RecipeError, "matches no layer"),
    ("adapters for nothing", {"name": "qat_lora", "more": ["lora.targets=['x']"]}, RecipeError, "matches no quantized"),
    ("a recipe that trains nothing", {"name": "default", "short": ()}, RecipeError, "trains nothing: run it with"),
    ("no row fits", {"more": ["train.max_tokens=16"]}, DataError, "holds no sample that can be used"),
]  # fmt: skip


@pytest.mark.parametrize("case, options, kind, words", BAD, ids=[case[0] for case in BAD])
def test_bad_input_is_one_line_and_leaves_nothing(
    place: Path, tmp_path: Path, case: str, options: dict[str, Any], kind: type[QuantizerError], words: str
) -> None:
    broken(place, tmp_path, case)
    recipe = load_recipe(options.get("name", "qat"), [*options.get("short", SHORT), *options.get("more", [])])
    with folders.nothing_left(tmp_path), pytest.raises(kind, match=words) as caught:
        run(
            recipe,
            place / "qwen3",
            place / "data.jsonl",
            tmp_path / "out",
            now=folders.NOW,
            device="cpu",
            resume=options.get("resume", False),
            log=silent,
        )

    assert "\n" not in str(caught.value)


# -------------------------------------------------------------------------------------------- checkpoints


def test_a_checkpoint_is_whole_or_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    saved = Checkpoints(tmp_path / "run", {"recipe": 1})
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
    saved = Checkpoints(tmp_path / "run", {})
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
