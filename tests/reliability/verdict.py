"""Whether what a process holds stays flat: a line through the samples after the warm-up. Pure."""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

WARM_UP = 0.3
"""Share of the time that is not judged: over an hour, caches and the allocator go on to fill in it."""
GROWTH = {"rss_mib": 8.0, "tasks": 8.0, "descriptors": 8.0, "threads": 1.5}
"""How much the line may climb from the end of the warm-up to the end of the run."""
AT_REST = {"tasks": 1.0, "descriptors": 2.0}
"""How much more may be held when everybody has gone than before anybody came."""


@dataclass(frozen=True)
class Held:
    """One measure: the line's climb over what is judged, and what is held at rest."""

    what: str
    median: float
    highest: float
    slope: float  # a minute
    climb: float
    before: float
    after: float

    @property
    def flat(self) -> bool:
        """Whether it stays within what is allowed."""
        return self.climb <= GROWTH[self.what] and self.after - self.before <= AT_REST.get(
            self.what, float("inf")
        )


def judge(
    samples: Sequence[Mapping[str, float]], before: Mapping[str, float], after: Mapping[str, float]
) -> list[Held]:
    """Each measure of the samples under load; `before` and `after` are those at rest."""
    start, end = samples[0]["t"], samples[-1]["t"]
    judged = [one for one in samples if one["t"] >= start + WARM_UP * (end - start)]
    times = [one["t"] for one in judged]
    found = []
    for what in GROWTH:
        values = [one[what] for one in judged]
        slope = statistics.linear_regression(times, values).slope
        climb = slope * (times[-1] - times[0])
        found.append(
            Held(
                what,
                statistics.median(values),
                max(values),
                round(slope * 60, 3),
                round(climb, 2),
                before[what],
                after[what],
            )
        )
    return found
