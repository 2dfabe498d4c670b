"""The table of what a session measures on GPUs: each part is a command that anyone can type, with its needs."""

from dataclasses import dataclass
from typing import Final

BENCH: Final = "python -m quantizer.bench"


@dataclass(frozen=True, slots=True)
class GpuPart:
    """One part of a session.

    command: a shell line, run in the repository's root. {out} is the part's own folder, {place} the session's, {vllm}
    vLLM's interpreter, {path} a folder of vLLM's packages or nothing, {python} this interpreter, {budget} the seconds left.
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


_REAL: Final = f"{BENCH}.real_size --place {{place}}/9b --scratch {{place}}/trained --out {{out}}/real.json --budget {{budget}}"
_OF_9B: Final = ("folders-9b",)

PARTS: Final = (
    GpuPart("chain", "python -m tests.chain --device cuda --vllm {vllm} --vllm-path '{path}' --out {place}/chain", 1750, 900, 300),
    GpuPart("folders-9b", f"{_REAL} --steps make,ptq,surgery && {BENCH}.spoken_folder {{place}}/9b/wrapped .work/random-9b", 300, 155),
    GpuPart("risk-9b", f"{_REAL} --steps risk,delta", 300, 105, after=_OF_9B),
    GpuPart("qad-9b", f"{_REAL} --steps qad", 700, 540, after=_OF_9B),
)  # fmt: skip
"""In the order of their start."""
