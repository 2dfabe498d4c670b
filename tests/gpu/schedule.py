"""Pure: which part begins next and on which GPU, and the plan of a session in which every part takes its expected time."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from tests.gpu.parts import GpuPart

BESIDE: Final = 2
"""Parts that share a GPU."""


@dataclass(frozen=True, slots=True)
class PlacedPart:
    """A part on its GPU. until: when it ends, or is ended, in seconds of the session or on the monotonic clock."""

    part: GpuPart
    gpu: int
    began: float
    until: float


def next_part(
    parts: Sequence[GpuPart], gpus: int, left: float, ended: Mapping[str, bool], running: Sequence[PlacedPart]
) -> tuple[GpuPart, int] | None:
    """The first part that can begin now, and its GPU. left: seconds of the session. ended: whether a part succeeded."""
    busy = {one.part.name for one in running}
    for part in parts:
        if part.name in ended or part.name in busy or left < part.needs:
            continue
        if not all(ended.get(name, False) for name in part.after):
            continue
        if (free := _free(part, gpus, running)) is not None:
            return part, free
    return None


def _free(part: GpuPart, gpus: int, running: Sequence[PlacedPart]) -> int | None:
    """The GPU for the part; a shared one first, so that another GPU stays free."""
    load = {gpu: [one.part for one in running if one.gpu == gpu] for gpu in range(gpus)}
    able = [gpu for gpu, on in load.items()
            if not on or (part.beside and all(other.beside for other in on) and len(on) < BESIDE)]  # fmt: skip
    return max(able, key=lambda gpu: len(load[gpu]) * part.beside, default=None)


def planned(
    parts: Sequence[GpuPart], gpus: int, seconds: float, done: Iterable[str] = ()
) -> list[PlacedPart]:
    """The parts that a session of so many seconds begins, in the order of their beginning. done: by an earlier session."""
    running: list[PlacedPart] = []
    begun: list[PlacedPart] = []
    ended = dict.fromkeys(done, True)
    now = 0.0
    while True:
        while chosen := next_part(parts, gpus, seconds - now, ended, running):
            part, on = chosen
            running.append(PlacedPart(part, on, now, min(now + part.expected, seconds)))
            begun.append(running[-1])
        if not running:
            return begun
        now = min(one.until for one in running)
        for one in [one for one in running if one.until <= now]:
            running.remove(one)
            ended[one.part.name] = one.part.expected <= one.until - one.began + 1e-6


def plan_table(parts: Sequence[GpuPart], plan: Sequence[PlacedPart]) -> str:
    """The plan as Markdown: minutes and seconds of the session."""
    rows = ["| part | GPU | begins | ends |", "|---|---|---|---|"]
    for one in plan:
        cut = " (cut off)" if one.part.expected > one.until - one.began + 1e-6 else ""
        rows.append(f"| {one.part.name} | {one.gpu} | {_clock(one.began)} | {_clock(one.until)}{cut} |")
    named = {one.part.name for one in plan}
    rows += [f"| {part.name} | | not begun | expected to take {_clock(part.expected)} |"
             for part in parts if part.name not in named]  # fmt: skip
    return "\n".join(rows) + "\n"


def _clock(seconds: float) -> str:
    minutes, rest = divmod(math.ceil(seconds), 60)
    return f"{minutes}:{rest:02d}"
