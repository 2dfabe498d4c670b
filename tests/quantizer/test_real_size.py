"""The one command for the real size, on a tiny model: every step, its table, and what a step that fails leaves."""

import json
from pathlib import Path
from typing import Any

import pytest

INSTALL = "needs the quantizer extra: pip install -e '.[quantizer]'"
torch = pytest.importorskip("torch", reason=INSTALL)
pytest.importorskip("transformers", reason=INSTALL)
pytest.importorskip("gguf", reason=INSTALL)
pytest.importorskip("xllamacpp", reason="needs the engine's wheel: pip install -e '.[embedded]'")

from tokenizers import Tokenizer  # noqa: E402

from quantizer.bench import real_size  # noqa: E402
from quantizer.bench.random_folder import NANO, write_random  # noqa: E402
from quantizer.bench.spoken_folder import pad, speak  # noqa: E402
from quantizer.checkpoint.source import load_model, open_source  # noqa: E402
from tests.quantizer import folders  # noqa: E402

pytestmark = [pytest.mark.torch, pytest.mark.usefixtures("one_thread")]
SMALL = real_size.SHAPES["tiny"]


def test_a_random_folder_is_the_same_every_time_and_can_be_loaded(tmp_path: Path) -> None:
    count = write_random(tmp_path / "a", SMALL)
    write_random(tmp_path / "b", SMALL, shard_bytes=2**18)
    first, second = folders.load(tmp_path / "a"), folders.load(tmp_path / "b")

    assert sum(tensor.numel() for tensor in first.values()) == count
    assert first.keys() == second.keys() and all(torch.equal(first[name], second[name]) for name in first)
    model: Any = load_model(open_source(tmp_path / "b"))
    with torch.no_grad():
        logits = model(torch.arange(32).unsqueeze(0)).logits
    assert torch.isfinite(logits).all() and logits.float().std() > 0.1


STEP = {
    "name": "ptq",
    "seconds": 50.0,
    "device_reserved_gib": 5.0,
    "host_gib": 2.0,
    "parts": {"load": 4.0},
    "bytes": 8e9,
}


def test_a_step_that_fails_is_a_row_and_what_was_measured_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written: list[int] = []

    def alone(step: Any, *rest: Any) -> dict[str, Any]:
        out = tmp_path / "out.json"
        written.append(len(json.loads(out.read_text())["steps"]) if out.exists() else 0)
        return STEP if step.name == "ptq" else {"name": step.name, "failed": "exit code 3"}

    monkeypatch.setattr(real_size, "_alone", alone)
    monkeypatch.setattr(real_size, "_machine", lambda shape: {"shape": shape, "steps": []})
    code = real_size.main(["--steps", "make,ptq,verify", "--shape", "tiny", "--place", str(tmp_path / "p"),
                           "--out", str(tmp_path / "out.json")])  # fmt: skip

    assert code == 1 and written == [0, 1, 2]


@pytest.mark.nightly  # each step has quicker tests: of PTQ, verify, surgery and GGUF in a real llama.cpp
@pytest.mark.slow  # six processes, each with its imports
@pytest.mark.timeout(300)
def test_the_tiny_model_goes_through_the_whole_quantizer(tmp_path: Path) -> None:
    names = "make,ptq,verify,surgery,gguf"
    out = tmp_path / "out.json"
    assert (
        real_size.main(
            ["--steps", names, "--shape", "tiny", "--place", str(tmp_path / "p"), "--out", str(out)]
        )
        == 0
    )
    steps = {step["name"]: step for step in json.loads(out.read_text())["steps"]}

    assert ",".join(steps) == names
    assert steps["ptq"]["check"]["parity"]["equal"] == steps["ptq"]["check"]["parity"]["tokens"] > 0
    assert steps["verify"]["sound"] is True
    assert all(step["host_gib"] > 0 for step in steps.values())


def test_every_token_is_text_and_prompts_are_what_they_were(tmp_path: Path) -> None:
    folder, out = tmp_path / "made", tmp_path / "out"
    folder.mkdir()
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (folder / name).write_bytes((NANO / name).read_bytes())
    (folder / "config.json").write_text(json.dumps({"text_config": {"vocab_size": 5000}}), "utf-8")
    speak(folder, out)
    before, after = (Tokenizer.from_file(str(one / "tokenizer.json")) for one in (folder, out))
    assert all(after.decode([number]) for number in range(before.get_vocab_size(), 5000))
    text = "<|im_start|>What is w4999 and <think> w2100?<|im_end|>"
    assert after.encode(text).ids == before.encode(text).ids
    assert after.get_vocab_size() == 5000
    assert (out / "tokenizer_config.json").resolve() == folder / "tokenizer_config.json"
    assert pad(json.loads((out / "tokenizer.json").read_text("utf-8")), 5000) == 0
