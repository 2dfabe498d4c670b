"""Whatever is wrong with what a command is given: one clear line with its exit code, and nothing half-written.

A row of the table is a fault, and a command that meets it. The commands run in this process, on a model of 64 columns.
"""

import json
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest

INSTALL = "needs the quantizer extra: pip install -e '.[quantizer]'"
pytest.importorskip("torch", reason=INSTALL)
pytest.importorskip("transformers", reason=INSTALL)

from safetensors.torch import save_file  # noqa: E402

from app.__main__ import main  # noqa: E402
from gates.run.runner import Pace  # noqa: E402
from quantizer.core.checkpoint import Checkpoints  # noqa: E402
from quantizer.nano import conversations  # noqa: E402
from tests.quantizer import folders, tiny  # noqa: E402

pytestmark = [pytest.mark.torch, pytest.mark.usefixtures("one_thread")]


@dataclass(frozen=True)
class Place:
    """What a command is given: a BF16 folder, an NVFP4 folder made of it, data, and where the result shall be."""

    source: Path
    packed: Path
    data: Path
    out: Path

    def words(self, verb: str) -> list[str]:
        """The command without a fault."""
        to = ["--out", str(self.out)]
        job = ["--source", str(self.source), "--data", str(self.data), *to, "--device", "cpu"]
        return {
            "ptq": ["quantize", "ptq", *job],
            "qat": ["quantize", "qat", *job, "--set", "train.max_steps=2"],
            "export": ["quantize", "export", str(self.packed), *to],
            "gguf": ["quantize", "gguf", str(self.source), *to, "--type", "f16"],
            "surgery": ["quantize", "surgery", str(self.source), *to, "--for", "vllm-0.19"],
            "compare": ["quantize", "compare", str(self.source), str(self.packed), "--data", str(self.data), "--device", "cpu"],
            "verify": ["quantize", "verify", str(self.packed), "--source", str(self.source)],
            "validate": ["data", "validate", str(self.data), "--source", str(self.source), "--suite", "annie-nano"],
            "generate": ["data", "generate", "--url", "http://127.0.0.1:9", "--model", "m", "--suite", "annie-nano", *to],
        }[verb]  # fmt: skip


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The faultless ones, made once."""
    folder = tmp_path_factory.mktemp("faultless")
    folders.save(tiny.qwen3_5, folder / "source")
    conversations.write(folder / "data.jsonl", 4)
    given = ["--source", str(folder / "source"), "--data", str(folder / "data.jsonl"), "--device", "cpu"]
    assert main(["quantize", "ptq", *given, "--out", str(folder / "packed"), "--json"]) == 0
    return folder


@pytest.fixture
def place(made: Path, tmp_path: Path) -> Place:
    """Copies that a fault may be put into."""
    for name in ("source", "packed"):
        shutil.copytree(made / name, tmp_path / name)
    shutil.copy(made / "data.jsonl", tmp_path)
    return Place(tmp_path / "source", tmp_path / "packed", tmp_path / "data.jsonl", tmp_path / "out")


# ----------------------------------------------------------------------------------------------- faults

Spoil = Callable[[Place], list[str] | None]
"""Puts a fault in, and may give further words for the command."""


def in_both(change: Callable[[Path], object]) -> Spoil:
    """A fault in the BF16 and in the NVFP4 folder."""

    def spoil(place: Place) -> None:
        change(place.source)
        change(place.packed)

    return spoil


def configured(folder: Path, **changes: Any) -> None:
    config = json.loads((folder / "config.json").read_text()) | changes
    (folder / "config.json").write_text(json.dumps(config))


def architecture(folder: Path) -> None:
    configured(folder, model_type="gpt_oss", architectures=["GptOssForCausalLM"])


def otherwise_quantized(place: Place) -> None:
    configured(place.packed, quantization_config={"quant_method": "gptq"})


def other_tokens(place: Place) -> None:
    path = place.packed / "tokenizer.json"
    document = json.loads(path.read_text())
    words = document["model"]["vocab"]
    document["model"]["vocab"] = dict(zip(words, reversed(words.values()), strict=True))
    path.write_text(json.dumps(document))


def not_numbers(place: Place) -> None:
    tensors = folders.load(place.packed)
    tensors["model.norm.weight"] *= float("nan")
    save_file(tensors, place.packed / "model.safetensors", metadata={"format": "pt"})


def cut_shard(folder: Path) -> None:
    """A download that stopped."""
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:-1000])


def own_file(option: str, text: str) -> Spoil:
    """An option that names a file with this text."""

    def spoil(place: Place) -> list[str]:
        mine = place.out.parent / "mine.toml"
        mine.write_text(text)
        return [option, str(mine)]

    return spoil


def data(text: bytes) -> Spoil:
    def spoil(place: Place) -> None:
        place.data.write_bytes(text)

    return spoil


ASKED = b'{"messages": [{"role": "user", "content": "hi"}]}\n'
CALLED = b'{"messages": [{"role": "user", "content": "hi"}, {"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": "{"}}]}]}\n'


def taken(place: Place) -> None:
    place.out.mkdir()
    (place.out / "mine").write_text("x")


def no_parent(place: Place) -> list[str]:
    (place.out.parent / "file").write_text("x")
    return ["--out", str(place.out.parent / "file" / "out")]


def other_checkpoint(*more: str) -> Spoil:
    def spoil(place: Place) -> list[str]:
        Checkpoints(place.out.parent / "out.training", lambda: {"recipe": "another"}).save({"step": 1})
        return list(more)

    return spoil


JOBS = ("ptq", "qat")
READERS = (*JOBS, "export", "gguf", "surgery", "compare")
VERIFIED = {"verify": 65}
TABLE: list[tuple[str, Spoil, dict[str, int], str]] = [
    ("weights of another architecture", in_both(architecture), dict.fromkeys(JOBS, 66), "lacks 40 of the model's weights"),
    ("no config.json", in_both(lambda f: (f / "config.json").unlink()), dict.fromkeys(READERS, 66), "config.json"),
    ("a config.json that is cut", in_both(lambda f: (f / "config.json").write_text("{")), dict.fromkeys(READERS, 66) | VERIFIED, "config.json"),
    ("a shard that is cut", in_both(cut_shard), dict.fromkeys(READERS, 66) | VERIFIED, "model.safetensors"),
    ("an empty shard", in_both(lambda f: (f / "model.safetensors").write_bytes(b"")), dict.fromkeys(READERS, 66) | VERIFIED, "model.safetensors"),
    ("no shard", in_both(lambda f: (f / "model.safetensors").unlink()), dict.fromkeys(READERS, 66) | VERIFIED, "safetensors"),
    ("no folder", in_both(shutil.rmtree), dict.fromkeys((*READERS, "validate"), 66) | VERIFIED, "no such folder"),
    ("another quantization", otherwise_quantized, {"compare": 66}, "quantized by 'gptq'"),
    ("weights that are NaN", not_numbers, {"compare": 66}, "packed: computes NaN or infinity"),
    ("another tokenizer", other_tokens, {"compare": 66}, "has another vocabulary"),
    ("no chat template", lambda place: (place.source / "chat_template.jinja").unlink(), dict.fromkeys((*JOBS, "validate", "compare"), 66), "chat template"),
    ("a recipe with an unknown key", own_file("--recipe", "[weights]\nscale = 'mse'\n"), dict.fromkeys(JOBS, 78), "did you mean 'scales'?"),
    ("a recipe that is not TOML", own_file("--recipe", "weights = [\n"), dict.fromkeys(JOBS, 78), "mine.toml"),
    ("a plan with an unknown key", own_file("--plan", "name = 'mine'\nverson = 1\n"), {"generate": 78}, "did you mean 'version'?"),
    ("a row that nobody answers", data(ASKED), dict.fromkeys(JOBS, 65), "data.jsonl:1: has no message of the assistant's"),
    ("a row that is not JSON", data(b'{"messages"\n'), dict.fromkeys(JOBS, 65), "data.jsonl:1: not JSON"),
    ("a call that is not JSON", data(CALLED), dict.fromkeys(JOBS, 65), "data.jsonl:1: message 1, call 0: arguments are not JSON"),
    ("bytes that are no text", data(b"\xff\xfe\n"), dict.fromkeys(JOBS, 65), "data.jsonl:1: not JSON"),
    ("no row at all", data(b""), dict.fromkeys((*JOBS, "validate", "compare"), 65), "data.jsonl: "),
    ("no data", lambda place: place.data.unlink(), dict.fromkeys((*JOBS, "validate"), 65), "data.jsonl: cannot be read (No such file or directory)"),
    ("a place that is taken", taken, dict.fromkeys((*JOBS, "export", "gguf", "surgery"), 73), "already exists"),
    ("a place below a file", no_parent, dict.fromkeys((*JOBS, "export", "gguf", "surgery", "generate"), 73), "cannot be made"),
    ("a checkpoint of another run", other_checkpoint("--resume"), dict.fromkeys(JOBS, 65), "belongs to another run"),
    ("a run that did not end", other_checkpoint(), dict.fromkeys(JOBS, 65), "continue it with --resume, or remove the folder"),
    ("a teacher that is not there", lambda place: None, {"generate": 69}, "127.0.0.1:9 failed"),
]  # fmt: skip
CASES = [
    pytest.param(verb, spoil, code, line, id=f"{verb}: {name}")
    for name, spoil, codes, line in TABLE
    for verb, code in codes.items()
]


@pytest.mark.parametrize("verb, spoil, code, line", CASES)
def test_bad_input_is_one_line_and_nothing_that_looks_whole(
    verb: str,
    spoil: Spoil,
    code: int,
    line: str,
    place: Place,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("gates.run.runner.Pace", partial(Pace, backoff_s=0.01))
    more = spoil(place) or []
    capsys.readouterr()

    with nothing_whole(place, verb):
        assert main([*place.words(verb), *more]) == code
    told = capsys.readouterr()
    last = told.err.strip().splitlines()[-1]
    assert last.startswith("manners ") and line in last, told.err
    assert "Traceback" not in told.err


@contextmanager
def nothing_whole(place: Place, verb: str) -> Iterator[None]:
    """A ledger may stay: it is where a run goes on."""
    if verb != "generate":
        with folders.nothing_left(place.out.parent):
            yield
        return
    yield
    left = sorted(path.name for path in place.out.iterdir()) if place.out.is_dir() else []
    assert left in ([], ["ledger.jsonl"])


# -------------------------------------------------------------------------------------------- a full disk


@pytest.mark.parametrize("size", [0, 200_000])
@pytest.mark.parametrize("verb", ["ptq", "qat", "export", "gguf", "surgery"])
def test_a_full_disk_is_one_line_and_leaves_nothing(
    verb: str, size: int, place: Place, capsys: pytest.CaptureFixture[str]
) -> None:
    capsys.readouterr()
    with folders.small_files(size):
        code = main(place.words(verb))

    last = capsys.readouterr().err.strip().splitlines()[-1]
    assert code in (65, 73) and "cannot be written (" in last, last
    assert not place.out.exists()
    assert not list(place.out.parent.glob(".out*"))
    assert not list(place.out.parent.glob("**/*.unfinished"))
