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
    interpreter, {path} a folder of vLLM's packages or nothing, {python} this one's, {budget} the seconds that
    it has, for a command that writes down what it did not reach. seconds: its limit. expected: what it takes on an H100, as it was measured
    or is estimated; with less time left it is not begun. least: instead of that, for a part that keeps what it has found when it is cut off.
    alone: it has all GPUs and the host to itself. beside: it leaves its GPU to another part that does so too. gpus: how many it needs. after: parts
    that must have ended well.
    """

    name: str
    command: str
    seconds: float
    expected: float
    least: float | None = None
    alone: bool = False
    beside: bool = False
    gpus: int = 1
    after: tuple[str, ...] = ()

    @property
    def needs(self) -> float:
        """Seconds that must be left for it to begin."""
        return self.expected if self.least is None else self.least

    @property
    def quiet(self) -> bool:
        """Whether it measures what other parts, or a busy host, would spoil, or takes every GPU."""
        return self.alone or self.gpus > 1


_VLLM: Final = "VLLM_USE_FLASHINFER_SAMPLER=0 PYTHONPATH={here}:{path} {vllm} -m quantizer.experiments.bench.first_tokens ask-vllm"
_MIXED: Final = (
    "--recipe default --set 'layers.fp8=[{layers}]' --set calibrate.conversations=128 --json --force"
)
_REAL: Final = f"{BENCH}.real_size --place {{place}}/9b --scratch {{place}}/trained --out {{out}}/real.json --budget {{budget}}"


def _mixed(source: str, data: str, layers: str, surgery: str = "") -> str:
    """A folder with FP8 layers, what vLLM says of it, and whether that is the likeliest."""
    ptq = f"{MANNERS} quantize ptq --source {source} --data {data} --out {{out}}/folder {_MIXED.replace('{layers}', layers)} > {{out}}/ptq.json"
    served = "{out}/wrapped" if surgery else "{out}/folder"
    return " && ".join(
        (ptq, *([surgery] if surgery else []), f"{_VLLM} {served} {{out}}/said.json", f"{TOKENS} judge {{out}}/folder {{out}}/said.json > {{out}}/judged.json")
    )  # fmt: skip


def _two_gpus(*variants: str) -> str:
    return f"{BENCH}.two_gpus --json {{out}}/two_gpus.json --budget {{budget}} --only " + " ".join(
        f"'{one}'" for one in variants
    )


_MATRIX_9B: Final = f"{MANNERS} bench --matrix gpu-9b --budget {{budget}} --out {{out}}"
_FIRST: Final = "--engine flashinfer --engine compiled --engine graphs-coder"
"""The variants that have not been measured to the end."""
_OF_9B: Final = ("folders-9b",)

PARTS: Final = (
    # The chain is the longest, on a GPU that it shares; beside it, on another one, what has not been measured yet.
    GpuPart("chain", "python -m tests.chain --device cuda --vllm {vllm} --vllm-path '{path}' --out {place}/chain", 1750, 900, 300, beside=True),
    GpuPart("folders-9b", f"{_REAL} --steps make,ptq,surgery && {BENCH}.spoken_folder {{place}}/9b/wrapped .work/random-9b", 300, 155),
    GpuPart("risk-9b", f"{_REAL} --steps risk,feedback,delta", 300, 105, after=_OF_9B),
    GpuPart("matrix-9b", f"{_MATRIX_9B} {_FIRST}", 700, 600, 300, after=_OF_9B),
    GpuPart("settings", f"{STUDY} all --settings --unchecked --rates settings --out {{place}}/settings --minutes 12 --processes 3 --sizes 1.3M 6.8M; "
            f"{STUDY} collect {{place}}/settings {{out}} --models 0", 830, 770, 400, beside=True),
    GpuPart("reference-9b", f"{BENCH}.reference_speed {{place}}/9b/nvfp4 --out {{out}}/reference.json", 400, 140, after=_OF_9B),
    GpuPart("fp8-nano", _mixed("models/annie-nano-hf", "{place}/9b/rows.jsonl", '"*.self_attn.*"'), 240, 70, after=_OF_9B),
    GpuPart("matrix-nano", f"{MANNERS} bench --matrix gpu-nano --budget {{budget}} --out {{out}}", 400, 390, 120),
    GpuPart("fp8-9b", _mixed("{place}/9b/bf16", "{place}/9b/rows.jsonl", '"*.self_attn.*","*.linear_attn.*"',
            f"{MANNERS} quantize surgery {{out}}/folder --for vllm-0.24 --out {{out}}/wrapped --json > {{out}}/surgery.json"), 400, 240, after=_OF_9B),
    GpuPart("qad-9b", f"{_REAL} --steps qad", 700, 540, after=_OF_9B),
    GpuPart("again-9b", f"{_MATRIX_9B} --engine eager --engine graphs --engine graphs-ngram", 600, 540, 300, after=_OF_9B),
    # Last, with every GPU and a quiet host: figures of speed, which another part would spoil. `--quiet` runs them in a session of their own.
    GpuPart("one-gpu-9b", _two_gpus("9B, one, 8 bits"), 420, 260, alone=True),
    GpuPart("two-gpus-9b", _two_gpus("9B, two, 8 bits"), 420, 280, alone=True, gpus=2),
    GpuPart("long-steps-9b", _two_gpus("9B, one, 8 bits, 8,192 tokens", "9B, two, 8 bits, 8,192 tokens"), 800, 520, 300, alone=True, gpus=2),
    GpuPart("kill", _two_gpus("kill"), 200, 80, gpus=2),
)  # fmt: skip
"""In the order in which they are begun, as far as GPUs are free and what they need is there."""
