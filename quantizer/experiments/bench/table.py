"""What the bench of training measured, and the table that people read. Pure."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Result:
    """name: the subject's. seconds: of a step. before: calibration, teacher, and the first half of the steps, which
    compiles. bytes: held at most at a time. losses: of every step."""

    name: str
    tokens_per_second: float
    seconds: float
    bytes: int
    before: dict[str, float]
    losses: list[float]


def table(results: list[Result]) -> list[str]:
    """For people: each subject beside the first, and how far its losses are from those of the plain loop of its kind."""
    lines = [
        f"{'subject':32} {'ms a step':>9} {'tokens/s':>9} {'x':>6} {'GiB':>6} {'x':>6} {'loss off by':>12}"
    ]
    if not results:
        return lines
    first, plain = results[0], {one.name: one for one in results if one.name.startswith("plain")}
    for one in results:
        kin = plain.get(f"plain {one.name.partition(',')[0]}")
        off = "" if kin is None else f"{_off(one.losses, kin.losses):12.1e}"
        lines.append(
            f"{one.name:32} {1000 * one.seconds:9.1f} {one.tokens_per_second:9,.0f} "
            f"{one.tokens_per_second / first.tokens_per_second:6.2f} {one.bytes / 2**30:6.1f} "
            f"{one.bytes / first.bytes:6.2f} {off}"
        )
    return lines


def _off(losses: list[float], wanted: list[float]) -> float:
    """The largest relative difference of two curves."""
    return max(abs(a - b) / abs(b) for a, b in zip(losses, wanted, strict=True))
