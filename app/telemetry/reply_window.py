"""The outcomes of every engine's latest live replies, by which a promoted candidate is watched; in memory, without text."""

from collections import defaultdict, deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final, Literal

from msgspec import Struct

from app.telemetry.clocks import Clocks

KEPT: Final = 2048  # replies for each model and engine; one turn in ten seconds fills it in six hours

Ended = Literal["ok", "failed", "other"]
"""Complete; failed by the engine; or neither (the caller disconnected, or was refused)."""

# Outcomes of `app.proxy.accounting` that say something about the engine. `error` is a fault of the gateway.
_ENDED: Final[dict[str, Ended]] = {"ok": "ok", "timeout": "failed", "upstream_error": "failed"}
# Codes that prove no fault of the engine: no room, or a model's reply that a caller can provoke.
NO_FAULT: Final = frozenset({"engine_busy", "host_exhausted", "reply_fully_filtered", "tool_choice_not_kept"})
_OTHER: Final = NO_FAULT | {"total_timeout"}  # a request may ask for more than fits into the time


class ReplyOutcome(Struct, frozen=True):
    """One reply."""

    ended: Ended
    judged: bool = False  # there was something for the detectors to look at
    breaches: frozenset[str] = frozenset()  # names of detectors
    # Seconds from when the engine was asked to the first content; None: not streamed, or a failover before it.
    wait: float | None = None
    shown: bool = True  # False: the caller gave up after `wait`, and would have waited longer


def ended_as(outcome: str, code: str | None) -> Ended:
    """How a request ended for its engine, from its outcome and error code."""
    return "other" if code in _OTHER else _ENDED.get(outcome, "other")


def wait_of(clocks: Clocks, queued: float, gave_up: float | None) -> tuple[float | None, bool]:
    """`wait` and `shown` of a streamed reply, without the time in our own queue; `gave_up` is when the caller left."""
    end = gave_up if clocks.first_content is None else clocks.first_content
    wait = None if end is None else end - clocks.start - queued
    return wait, clocks.first_content is not None or end is None


@dataclass(slots=True)
class _Record:
    count: int = 0
    lately: deque[ReplyOutcome] = field(default_factory=lambda: deque(maxlen=KEPT))


class ReplyWindow:
    """Takes every reply; for use in one event loop."""

    def __init__(self) -> None:
        self._records = defaultdict[tuple[str, str], _Record](_Record)
        self._switches: dict[tuple[str, str], int] = {}  # by model and live engine: the mark then

    def add(self, model: str, engine: str, reply: ReplyOutcome) -> None:
        """Add a finished reply."""
        record = self._records[model, engine]
        record.count += 1
        record.lately.append(reply)

    def mark(self, model: str, engine: str) -> int:
        """The number of replies added so far."""
        return self._records[model, engine].count

    def switched(self, model: str, *engines: str) -> None:
        """Record that new requests of the model go to these engines; no effect for one that was recorded before."""
        before = self._switches
        now = {(model, engine): before.get((model, engine), self.mark(model, engine)) for engine in engines}
        self._switches = {key: mark for key, mark in before.items() if key[0] != model} | now

    def switch(self, model: str, engine: str) -> int:
        """The mark at which the model was switched to this engine; the present one if unknown."""
        return self._switches.get((model, engine), self.mark(model, engine))

    def after(self, model: str, engine: str, mark: int = 0) -> tuple[ReplyOutcome, ...]:
        """The kept replies that were added after a mark, the oldest first; at most `KEPT`."""
        record = self._records[model, engine]
        fresh = min(record.count - mark, len(record.lately))
        return tuple(record.lately)[len(record.lately) - fresh :]


def waits(replies: Iterable[ReplyOutcome]) -> list[float]:
    """The times to first content that were seen."""
    return [one.wait for one in replies if one.wait is not None and one.shown]
