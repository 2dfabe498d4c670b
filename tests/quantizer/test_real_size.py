"""The one command for the real size, on a tiny model: every step, its table, and what a step that fails leaves."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

INSTALL = "needs the quantizer extra: pip install -e '.[quantizer]'"
torch = pytest.importorskip("torch", reason=INSTALL)
pytest.importorskip("transformers", reason=INSTALL)
pytest.importorskip("gguf", reason=INSTALL)
pytest.importorskip("xllamacpp", reason="needs the engine's wheel: pip install -e '.[embedded]'")

from tokenizers import Tokenizer  # noqa: E402

from quantizer.bench import first_tokens, real_size  # noqa: E402
from quantizer.bench.random_folder import NANO, write_random  # noqa: E402
from quantizer.bench.spoken_folder import pad, speak  # noqa: E402
from quantizer.checkpoint.source import load_model, open_source  # noqa: E402
from quantizer.core.cost import default_device  # noqa: E402
from quantizer.gguf.write import write_gguf  # noqa: E402
from quantizer.ptq.parity import served_model  # noqa: E402
from tests.quantizer import folders, tiny  # noqa: E402

pytestmark = [pytest.mark.torch, pytest.mark.usefixtures("one_thread")]
SMALL = real_size.shape_of("tiny")


def test_a_random_folder_is_the_same_every_time_and_can_be_loaded(tmp_path: Path) -> None:
    """By its seed, whatever its shards."""
    count = write_random(tmp_path / "a", SMALL)
    write_random(tmp_path / "b", SMALL, shard_bytes=2**18)
    first, second = folders.load(tmp_path / "a"), folders.load(tmp_path / "b")

    assert sum(tensor.numel() for tensor in first.values()) == count
    assert first.keys() == second.keys() and all(torch.equal(first[name], second[name]) for name in first)
    model: Any = load_model(open_source(tmp_path / "b"))
    with torch.no_grad():
        logits = model(torch.arange(32).unsqueeze(0)).logits
    assert torch.isfinite(logits).all() and logits.float().std() > 0.1


def test_real_sizes_are_those_of_the_issue() -> None:
    """8.95 B parameters by Qwen3.5's own configuration, with a vocabulary of 248,320."""
    from transformers import Qwen3_5TextConfig

    assert real_size.shape_of("9b") == {} and Qwen3_5TextConfig().vocab_size == 248_320


STEP = {
    "name": "ptq",
    "seconds": 50.0,
    "device_reserved_gib": 5.0,
    "host_gib": 2.0,
    "parts": {"load": 4.0},
    "bytes": 8e9,
}


def test_the_table_compares_with_modelopt() -> None:
    theirs = {**STEP, "name": "modelopt", "seconds": 100.0, "device_reserved_gib": 20.0, "host_gib": 4.0}
    lines = real_size.table({"steps": [STEP, {"name": "awq", "failed": "exit code 1"}, theirs]})

    assert "| ptq | 50 | load 4 | 5.0 | 2 | 8.0 |" in lines and "| awq | exit code 1 | | | | |" in lines
    assert lines[-1] == "ptq to modelopt: 0.50 of the time, 0.25 of the device's memory, 0.50 of the host's"


def test_steps_need_what_was_made_before_them() -> None:
    """A step's folders are made by an earlier one, and not removed before it."""
    there: set[str] = set()
    for step in real_size.PATH_STEPS:
        there -= set(step.drops)
        for name in ("bf16", "nvfp4"):
            assert (
                f"{{{name}}}" not in step.command.replace(f"--out {{{step.makes}}}", "") or name in there
            ), step
        there.add(step.makes)


def test_a_step_that_fails_is_a_row_and_what_was_measured_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Written after every step: a run that is cut off keeps what it has."""
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
    assert (tmp_path / "out.md").read_text().count("exit code 3") == 2


def test_two_runs_may_use_the_same_folders_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A GPU session trains from a folder on one GPU while another run reads it on the next."""
    steps = {step.name: step for step in real_size.PATH_STEPS}
    others: list[dict[str, Any]] = []

    def child(command: list[str], **_: Any) -> SimpleNamespace:
        name = command[-1]
        if name == "qad":  # meanwhile the other run does a whole step
            others.append(real_size._alone(steps["risk"], "tiny", tmp_path, 60, tmp_path))
        monkeypatch.setattr(real_size, "run_part", lambda *_: {"name": name})
        real_size.one_part(name, "tiny", tmp_path, tmp_path)
        if name == "risk":
            others.append(real_size._alone(steps["verify"], "tiny", tmp_path, 60, tmp_path))
        return SimpleNamespace(returncode=0)

    monkeypatch.setattr(subprocess, "run", child)
    assert real_size._alone(steps["qad"], "tiny", tmp_path, 60, tmp_path) == {"name": "qad"}
    assert others == [{"name": "verify"}, {"name": "risk"}]


def test_no_step_begins_without_time(tmp_path: Path) -> None:
    found = real_size.run_all(["make"], "tiny", tmp_path, None, 1.0)
    assert found["steps"][0]["failed"].startswith("not begun: ")


def test_an_unknown_step_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        real_size.main(["--steps", "make,nothing"])
    assert "--steps: there is no nothing; known: make, ptq" in capsys.readouterr().err


def test_error_feedback_is_measured_by_stages(tmp_path: Path) -> None:
    (step,) = (one for one in real_size.PATH_STEPS if one.name == "feedback")
    found = real_size.run_part(step, tmp_path, "tiny", tmp_path)

    stages = ("scales", "scales by torch", "factor", "panels", "panels by torch", "no panels")
    assert {f"down, {stage}" for stage in stages} < found["parts"].keys()
    assert found["equal"] is True and min(found["alike"].values()) > 0.99
    assert set(found["kernels"].values()) == {default_device() == "cuda"}


@pytest.mark.nightly  # each step has quicker tests: of PTQ, verify, surgery and GGUF in a real llama.cpp
@pytest.mark.slow  # six processes, each with its imports
@pytest.mark.timeout(300)
def test_the_tiny_model_goes_through_the_whole_quantizer(tmp_path: Path) -> None:
    names = "make,ptq,verify,surgery,gguf,llama_cpp"
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
    assert steps["verify"]["sound"] is True and steps["llama_cpp"]["likeliest"] is True
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


# ------------------------------------------------------------------------------------------------- first tokens


def greedy(model: Any, vocabulary: int) -> list[dict[str, Any]]:
    """What a faithful engine would say."""
    said = []
    for prompt in first_tokens.prompts(vocabulary):
        ids = list(prompt)
        for _ in range(first_tokens.REPLY):
            with torch.no_grad():
                ids.append(int(model(torch.tensor([ids])).logits[0, -1].argmax()))
        said.append({"prompt": prompt, "reply": ids[len(prompt) :]})
    return said


def test_a_faithful_engine_says_the_likeliest_and_another_does_not(tmp_path: Path) -> None:
    source = folders.bare(tiny.qwen3_5, tmp_path / "source")
    served: Any = served_model(folders.export(folders.attached(source), source, tmp_path / "out"))
    said = greedy(served, tiny.SIZE["vocab_size"])
    found = first_tokens.judge(said, served, "cpu")

    assert found["likeliest"]  # in BF16, two may be equally likely
    assert sum(place == 0 for row in found["places"] for place in row) > 24
    worst = [{**one, "reply": [(token + 1) % 96 for token in one["reply"]]} for one in said]
    assert not first_tokens.judge(worst, served, "cpu")["likeliest"]


def test_a_gguf_file_is_read_back_as_the_model(tmp_path: Path) -> None:
    """In F16 its numbers are those of the source: names, order of heads, gains and decays."""
    write_random(tmp_path / "source", SMALL)
    write_gguf(tmp_path / "source", tmp_path / "x.gguf", "f16", "x")
    read: Any = first_tokens.gguf_model(tmp_path / "source", tmp_path / "x.gguf", "cpu")
    model: Any = load_model(open_source(tmp_path / "source"), torch.float32)
    ids = torch.arange(64).reshape(2, 32)
    with torch.no_grad():
        wanted, found = model(ids).logits, read(ids).logits

    torch.testing.assert_close(found, wanted, rtol=1e-2, atol=1e-2)


def test_a_weight_only_kernel_is_judged_by_what_it_computes(tmp_path: Path) -> None:
    """On a GPU without FP4 inputs are not rounded, and the likeliest tokens of the same bytes are others."""
    source = folders.bare(tiny.qwen3_5, tmp_path / "source")
    out = folders.export(folders.attached(source, amax=1e-3), source, tmp_path / "out")  # cuts inputs off
    said = greedy(served_model(out, weight_only=True), tiny.SIZE["vocab_size"])
    (tmp_path / "said.json").write_text(json.dumps(said))

    assert first_tokens.judge(said, served_model(out, weight_only=True), "cpu")["likeliest"]
    assert not first_tokens.judge(said, served_model(out), "cpu")["likeliest"]
    assert first_tokens.main(["judge", str(out), str(tmp_path / "said.json")]) == 0


def test_inputs_are_rounded_to_eight_bits_of_each_256() -> None:
    """The largest of a block exactly, the others by half a step at most; a block of zeros stays."""
    x = torch.randn(3, 512, generator=torch.Generator().manual_seed(2)) * torch.tensor([[1e-3], [1.0], [0.0]])
    found = first_tokens.round_to_q8_k(x)
    largest = x.unflatten(-1, (2, 256)).abs().amax(-1, keepdim=True)
    off = (found - x).unflatten(-1, (2, 256)).abs()

    assert (off <= largest / 127 * 0.5001).all() and off[:2].max() > 0 and not found[2].any()
    torch.testing.assert_close(found.unflatten(-1, (2, 256)).abs().amax(-1, keepdim=True), largest)
