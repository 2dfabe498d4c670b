"""From samples to figures: medians over rounds, added times, ratios. Pure.

Rounds differ more from each other than subjects do within one, so differences and ratios are taken
within each round first, and only then the median.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median

BASE = "direct"


@dataclass(frozen=True)
class Sample:
    """One row on one subject in one round. CPU per chunk in microseconds, times in milliseconds."""

    row: str
    subject: str
    round: int
    streams: int
    cpu_us: float
    ttft50: float
    ttft99: float
    gap50: float
    gap99: float
    joined: float  # tokens per event that arrived: 1 unless a gateway joins some
    rss_mib: float
    wall: float
    others: float  # cores that the rest of the machine kept busy meanwhile


@dataclass(frozen=True)
class Line:
    """A subject in a row. `added_*` are above the engine asked directly."""

    row: str
    subject: str
    cpu_us: float
    cpu_low: float
    cpu_high: float
    added_ttft50: float
    added_ttft99: float
    added_gap99: float
    joined: float
    rss_mib: float


@dataclass(frozen=True)
class Ratio:
    """A figure of ours over another's, and what was aimed at."""

    figure: str
    row: str
    against: str
    value: float
    low: float
    high: float
    aim: float | None


def quantile(values: Sequence[float], q: float) -> float:
    """The value below which a share `q` lies (nearest rank)."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * q))] if ordered else float("nan")


def pairs(samples: Sequence[Sample], row: str, one: str, other: str) -> list[tuple[Sample, Sample]]:
    """Samples of two subjects, matched by round."""
    others = {s.round: s for s in samples if s.row == row and s.subject == other}
    ones = [s for s in samples if s.row == row and s.subject == one]
    return [(s, others[s.round]) for s in ones if s.round in others]


def line(samples: Sequence[Sample], row: str, subject: str) -> Line | None:
    """The medians of a subject in a row; None if it was not measured."""
    mine = [s for s in samples if s.row == row and s.subject == subject]
    both = pairs(samples, row, subject, BASE)
    if not mine:
        return None

    def added(figure: Callable[[Sample], float]) -> float:
        return median(figure(a) - figure(b) for a, b in both) if both else float("nan")

    cpu = [s.cpu_us for s in mine]
    return Line(
        row=row,
        subject=subject,
        cpu_us=median(cpu),
        cpu_low=min(cpu),
        cpu_high=max(cpu),
        added_ttft50=added(lambda s: s.ttft50),
        added_ttft99=added(lambda s: s.ttft99),
        added_gap99=added(lambda s: s.gap99),
        joined=median(s.joined for s in mine),
        rss_mib=median(s.rss_mib for s in mine),
    )


def cpu_ratio(
    samples: Sequence[Sample], row: str, ours: str, against: str, aim: float | None
) -> Ratio | None:
    """CPU per chunk, ours over another's."""
    found = [a.cpu_us / b.cpu_us for a, b in pairs(samples, row, ours, against) if b.cpu_us]
    return _ratio("CPU per chunk", row, against, found, aim)


def ttft_ratio(
    samples: Sequence[Sample], row: str, ours: str, against: str, aim: float | None
) -> Ratio | None:
    """Added TTFT p50, ours over another's."""
    direct = {s.round: s.ttft50 for s in samples if s.row == row and s.subject == BASE}
    both = [(a, b) for a, b in pairs(samples, row, ours, against) if a.round in direct]
    found = [(a.ttft50 - direct[a.round]) / (b.ttft50 - direct[b.round]) for a, b in both]
    return _ratio("added TTFT p50", row, against, found, aim)


def _ratio(figure: str, row: str, against: str, found: list[float], aim: float | None) -> Ratio | None:
    if not found:
        return None
    return Ratio(figure, row, against, median(found), min(found), max(found), aim)


AIMS = (
    (cpu_ratio, "paced-c16", "smg", 1.0),
    (cpu_ratio, "paced-c16", "litellm", 1 / 30),
    (ttft_ratio, "first-c1", "litellm", 1 / 8),
    (cpu_ratio, "paced-c16", "before", 1.05),
    (cpu_ratio, "paced-c1", "before", 1.05),
    (cpu_ratio, "unpaced-c16", "before", 1.05),
    (ttft_ratio, "first-c1", "before", 1.05),
    (cpu_ratio, "paced-c16", "aiohttp", None),
    (cpu_ratio, "paced-c16", "nginx", None),
    (ttft_ratio, "first-c1", "smg", None),
)


def ratios(samples: Sequence[Sample], ours: str) -> list[Ratio]:
    """Every ratio that can be told from the samples, aims first."""
    made = [make(samples, row, ours, against, aim) for make, row, against, aim in AIMS]
    return [ratio for ratio in made if ratio]
