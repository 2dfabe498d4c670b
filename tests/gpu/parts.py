"""What is measured on a GPU, as a table: each part a command that anyone can type, and what it needs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

BENCH: Final = "python -m quantizer.experiments.bench"
MANNERS: Final = "python -m app"
STUDY: Final = "python -m quantizer.experiments.study"
TOKENS: Final = "python -m quantizer.experiments.bench.first_tokens"


@dataclass(frozen=True, slots=True)
class GpuPart:
    """One part of a session.

    command: a line of a shell in the repository's root; {out} is its own folder, {place} the session's, {vllm} vLLM's
    interpreter, {path} a folder of vLLM's packages or nothing, {python} this one's. seconds: its limit. least: with less time left it is not begun.
    alone: it has all GPUs and the host to itself. beside: it leaves its GPU to another part that does so too. gpus: how many it needs. after: parts
    that must have ended well.
    """

    name: str
    command: str
    seconds: float
    least: float = 60.0
    alone: bool = False
    beside: bool = False
    gpus: int = 1
    after: tuple[str, ...] = ()


_VLLM: Final = "VLLM_USE_FLASHINFER_SAMPLER=0 PYTHONPATH={here}:{path} {vllm} -m quantizer.experiments.bench.first_tokens ask-vllm"
_MIXED: Final = (
    "--recipe default --set 'layers.fp8=[{layers}]' --set calibrate.conversations=128 --json --force"
)
_REAL: Final = f"{BENCH}.real_size --place {{place}}/9b --scratch {{place}}/trained --out {{out}}/real.json"


def _mixed(source: str, data: str, layers: str, surgery: str = "") -> str:
    """A folder with FP8 layers, what vLLM says of it, and whether that is the likeliest."""
    ptq = f"{MANNERS} quantize ptq --source {source} --data {data} --out {{out}}/folder {_MIXED.replace('{layers}', layers)} > {{out}}/ptq.json"
    served = "{out}/wrapped" if surgery else "{out}/folder"
    return " && ".join(
        (ptq, *([surgery] if surgery else []), f"{_VLLM} {served} {{out}}/said.json", f"{TOKENS} judge {{out}}/folder {{out}}/said.json > {{out}}/judged.json")
    )  # fmt: skip


PARTS: Final = (
    # First, alone: figures of speed, which another part beside them would spoil.
    GpuPart("one-gpu-9b", f"{BENCH}.two_gpus --json {{out}}/two_gpus.json --only '9B, one, 8 bits' --budget 400", 420, 200, alone=True),
    GpuPart("two-gpus-9b", f"{BENCH}.two_gpus --json {{out}}/two_gpus.json --only '9B, two, 8 bits' --budget 400", 420, 200, alone=True, gpus=2),
    GpuPart("folders-9b", f"{_REAL} --steps make,ptq,surgery && {BENCH}.spoken_folder {{place}}/9b/wrapped .work/random-9b", 300, 150),
    GpuPart("chain", "python -m tests.chain --device cuda --vllm {vllm} --vllm-path '{path}' --out {place}/chain", 1500, 120, beside=True),
    GpuPart("matrix-9b", f"{MANNERS} bench --matrix gpu-9b --out {{out}}", 900, 120, after=("folders-9b",)),
    GpuPart("settings", f"{STUDY} all --settings --unchecked --rates settings --out {{place}}/settings --minutes 12 --processes 6 --sizes 1.3M 6.8M; "
            f"{STUDY} collect {{place}}/settings {{out}} --models 0", 800, 300, beside=True),
    GpuPart("fp8-nano", _mixed("models/annie-nano-hf", "{place}/9b/rows.jsonl", '"*.self_attn.*"'), 240, after=("folders-9b",)),
    GpuPart("matrix-nano", f"{MANNERS} bench --matrix gpu-nano --out {{out}}", 400, 90),
    GpuPart("qad-9b", f"{_REAL} --steps qad", 700, 300, after=("folders-9b",)),
    GpuPart("fp8-9b", _mixed("{place}/9b/bf16", "{place}/9b/rows.jsonl", '"*.self_attn.*","*.linear_attn.*"',
            f"{MANNERS} quantize surgery {{out}}/folder --for vllm-0.24 --out {{out}}/wrapped --json > {{out}}/surgery.json"), 400, 150, after=("folders-9b",)),
    GpuPart("long-steps-9b", f"{BENCH}.two_gpus --json {{out}}/two_gpus.json --only '9B, one, 8 bits, 8,192 tokens' '9B, two, 8 bits, 8,192 tokens' "
            "--budget 780", 800, 400, alone=True, gpus=2),
    GpuPart("kill", f"{BENCH}.two_gpus --json {{out}}/two_gpus.json --only kill", 200, 100, gpus=2),
)  # fmt: skip
"""In the order in which they are begun, as far as GPUs are free and what they need is there."""
