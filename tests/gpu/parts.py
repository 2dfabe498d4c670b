"""The table of what a session measures on GPUs: each part is a command that anyone can type, with its needs."""

from dataclasses import dataclass
from typing import Final

MANNERS: Final = "python -m app"


@dataclass(frozen=True, slots=True)
class GpuPart:
    """One part of a session.

    command: a shell line, run in the repository's root. {out} is the part's own folder, {place} the session's, {vllm}
    vLLM's interpreter, {path} a folder of vLLM's packages or nothing.
    seconds: the limit. expected: seconds on an H100; the part does not begin with less time left.
    least: replaces `expected` for a part that keeps its results when it is cut off.
    after: parts that must have succeeded.
    """

    name: str
    command: str
    seconds: float
    expected: float
    least: float | None = None
    after: tuple[str, ...] = ()

    @property
    def needs(self) -> float:
        """Seconds that must be left for it to begin."""
        return self.expected if self.least is None else self.least


_9B: Final = "{place}/9b"
"""A random model of Qwen3.5-9B's shape, and what the quantizer makes of it. A command's own figures are in the part's log."""


def _made(verb: str, name: str, options: str = "") -> str:
    """A command of the quantizer that makes a folder of the 9B anew; with --force, for a plan's guess must not end a measurement."""
    data = f"--source {_9B}/bf16 --data {_9B}/rows.jsonl"
    return (
        f"rm -rf {_9B}/{name} && {MANNERS} quantize {verb} {options} {data} --out {_9B}/{name} --json --force"
    )


_TRAINED: Final = "--set train.optimizer=adamw_8bit --set train.recompute=true --set train.max_steps=4"
_OF_9B: Final = ("folders-9b",)

PARTS: Final = (
    GpuPart("chain", "python -m tests.chain --device cuda --vllm {vllm} --vllm-path '{path}' --out {place}/chain", 1750, 900, 300),
    GpuPart("folders-9b", f"rm -rf {_9B} && python -m tests.gpu.random_folder {_9B}/bf16 --rows {_9B}/rows.jsonl && {_made('ptq', 'nvfp4')} && "
            f"{MANNERS} quantize surgery {_9B}/nvfp4 --for vllm-0.24 --out {_9B}/wrapped", 300, 155),
    GpuPart("risk-9b", f"{MANNERS} quantize risk --base {_9B}/bf16 --source {_9B}/bf16 --json && {_made('ptq', 'delta', f'--recipe delta --base {_9B}/bf16')}", 300, 105, after=_OF_9B),
    GpuPart("qad-9b", _made("qad", "qad", _TRAINED), 700, 540, after=_OF_9B),
    GpuPart("verify-9b", f"{MANNERS} quantize verify {_9B}/nvfp4 --source {_9B}/bf16 --json", 200, 60, after=_OF_9B),
    GpuPart("gguf-9b", f"rm -rf {_9B}/gguf && {MANNERS} quantize gguf {_9B}/bf16 --type q4_k_m --out {_9B}/gguf --force", 400, 120, after=_OF_9B),
    GpuPart("awq-9b", _made("ptq", "awq", "--recipe awq_lite"), 300, 90, after=_OF_9B),
    GpuPart("qat-9b", _made("qat", "qat", _TRAINED), 700, 400, after=_OF_9B),
)  # fmt: skip
"""In the order of their start."""
