"""What latency is measured by: every metric as one row."""

from collections.abc import Mapping
from typing import Final, NamedTuple


class Metric(NamedTuple):
    """A time, of which less is better, or a rate. `name` stands in sentences."""

    title: str
    name: str
    unit: str
    is_rate: bool = False

    @property
    def slower(self) -> float:
        """The sign of a change for the worse."""
        return -1.0 if self.is_rate else 1.0

    def within(self, limit: float) -> str:
        """A limit in words."""
        return f"{'at least' if self.is_rate else 'at most'} {limit:g} {self.unit}"


METRICS: Final[Mapping[str, Metric]] = {
    "ttft": Metric("Time to first token", "TTFT", "ms"),
    "decode": Metric("Decode speed", "decode rate", "tokens/s", is_rate=True),
    "first_sentence": Metric("Time to first sentence", "time to the first sentence", "ms"),
}
