"""Which part begins next and on which GPUs, and what a session will come to if every part takes what it is expected to. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from tests.gpu.parts import GpuPart

BESIDE: Final = 2
"""Parts that share a GPU."""


@dataclass(frozen=True, slots=True)
class PlacedPart:
    """A part on its GPUs. until: when it ends, or is ended, in seconds of the session or on the monotonic clock."""

    part: GpuPart
    gpus: tuple[int, ...]
    began: float
    until: float


def next_part(
    parts: Sequence[GpuPart], gpus: int, left: float, ended: Mapping[str, bool], running: Sequence[PlacedPart]
) -> tuple[GpuPart, tuple[int, ...]] | None:
    """The first part that can begin now, and its GPUs. Nothing overtakes a part that waits for the host to itself.

    left: seconds of the session. ended: parts that have, and whether they did well.
    """
    busy = {one.part.name for one in running}
    for part in parts:
        if part.name in ended or part.name in busy or part.gpus > gpus or left < part.needs:
            continue
        if not all(ended.get(name, False) for name in part.after):
            continue
        if free := _free(part, gpus, running):
            return part, free
        if part.alone:
            return None
    return None


def _free(part: GpuPart, gpus: int, running: Sequence[PlacedPart]) -> tuple[int, ...]:
    """The GPUs that the part would get; none if it has to wait."""
    if any(one.part.alone for one in running) or (part.alone and running):
        return ()
    load: dict[int, list[GpuPart]] = {gpu: [] for gpu in range(gpus)}
    for one in running:
        for gpu in one.gpus:
            load[gpu].append(one.part)
    able = [gpu for gpu, on in load.items()
            if not on or (part.beside and all(other.beside for other in on) and len(on) < BESIDE)]  # fmt: skip
    able.sort(key=lambda gpu: len(load[gpu]), reverse=part.beside)  # together, so that another GPU stays free
    return tuple(able[: part.gpus]) if len(able) >= part.gpus else ()


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
    rows = ["| part | GPUs | begins | ends |", "|---|---|---|---|"]
    for one in plan:
        cut = " (cut off)" if one.part.expected > one.until - one.began + 1e-6 else ""
        rows.append(
            f"| {one.part.name} | {', '.join(map(str, one.gpus))} | {_clock(one.began)} | {_clock(one.until)}{cut} |"
        )
    named = {one.part.name for one in plan}
    rows += [f"| {part.name} | | not begun | expected to take {_clock(part.expected)} |"
             for part in parts if part.name not in named]  # fmt: skip
    return "\n".join(rows) + "\n"


def _clock(seconds: float) -> str:
    minutes, rest = divmod(math.ceil(seconds), 60)
    return f"{minutes}:{rest:02d}"
