"""The plan and the table of `manners bench`: engines, thinking on and off, streamed and whole replies. Pure.

Requests are those of the latency gate (`gates.run.latency`). A cell is one engine with one setting of thinking and
streaming. The TTFT of a reply that is not streamed is its total time.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product, zip_longest
from math import inf, isinf
from typing import Any, Final

from deploy.engine.dialects import DIALECTS
from gates.contracts.case import Case, Sampling, Suite
from gates.contracts.sample import LATENCY_PREFIX
from gates.run.latency import LatencyReading, Schedule, latency_requests
from gates.run.request import PlannedRequest, body_digest
from gates.run.target import Arm, Target, Variant

THOUGHT_ROOM: Final = 512
"""Added to max_tokens where thinking is on, because the answer follows the thought."""


@dataclass(frozen=True, slots=True)
class BenchCell:
    """One engine with one setting of thinking and streaming."""

    engine: str
    thinking: bool
    stream: bool

    @property
    def arm(self) -> str:
        """The arm's name in the samples."""
        return (
            f"{self.engine} {'thinking' if self.thinking else 'plain'} {'stream' if self.stream else 'whole'}"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchRow:
    """The figures of one cell for one prompt length. Times in ms, decoding in tokens/s; quantiles are values of the sample.

    `n` counts the timed requests; a failure counts as infinitely slow. `void` are replies of whose prompt too little
    was cached, `thought` those with a thought.
    """

    engine: str
    thinking: bool
    stream: bool
    length: int
    n: int
    failed: int
    void: int
    thought: int
    ttft_median: float | None
    ttft_p95: float | None
    sentence_median: float | None
    decode_median: float | None
    decode_p05: float | None
    why: str = ""


def cells(
    engines: Mapping[str, Target], thinking: Sequence[bool], stream: Sequence[bool]
) -> tuple[BenchCell, ...]:
    """All cells. Engines without a switch for thinking are measured without."""
    found = [BenchCell(name, t, s) for name, t, s in product(engines, thinking, stream)]
    found = [
        c if DIALECTS[engines[c.engine].dialect].has_thinking_switch else replace(c, thinking=False)
        for c in found
    ]
    return tuple(dict.fromkeys(found))


def pick(suite: Suite, many: int) -> tuple[Case, ...]:
    """Select prompts that are answered in text, spread over as many kinds as there are."""
    kinds: dict[str, list[Case]] = {}
    for case in suite.cases:
        if not case.expect.get("calls") and case.tool_choice is None and case.messages[-1]["role"] == "user":
            kinds.setdefault(case.turn, []).append(case)
    rounds = zip_longest(*sorted(kinds.values(), key=len, reverse=True))
    return tuple(case for one in rounds for case in one if case is not None)[:many]


def plan(
    suite: Suite,
    asked: Sequence[BenchCell],
    engines: Mapping[str, Target],
    prompts: Sequence[Case],
    schedule: Schedule,
) -> tuple[PlannedRequest, ...]:
    """All requests in order. Raises RunError."""
    arms = {
        LATENCY_PREFIX + cell.arm: Arm(
            LATENCY_PREFIX + cell.arm, engines[cell.engine], Variant(thinking=cell.thinking)
        )
        for cell in asked
    }
    ways = {LATENCY_PREFIX + cell.arm: cell for cell in asked}
    made = latency_requests(suite.digest, list(arms.values()), prompts, _sampling(suite, schedule), schedule)
    return tuple(_in_its_way(ask, ways[ask.key.arm]) for ask in made)


def _sampling(suite: Suite, schedule: Schedule) -> Sampling:
    return replace(suite.sampling, max_tokens=schedule.max_tokens)


def _in_its_way(ask: PlannedRequest, cell: BenchCell) -> PlannedRequest:
    """The request with the cell's setting of streaming and thinking."""
    request: dict[str, Any] = dict(ask.request)
    if cell.thinking:
        request["max_tokens"] += THOUGHT_ROOM
    if not cell.stream:
        request["stream"] = False
        request.pop("stream_options", None)
    key = replace(ask.key, request=body_digest(request), mode="stream" if cell.stream else "whole")
    return replace(ask, request=request, key=key, before=_whole(ask.before))


def _whole(before: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """The request that fills the prefix cache; the same for all cells."""
    if before is None:
        return None
    kept = {key: value for key, value in before.items() if key != "stream_options"}
    return {**kept, "stream": False}


# -------------------------------------------------------------------------------------------- table


def rows(
    asked: Sequence[BenchCell], lengths: Sequence[int], taken: Iterable[LatencyReading]
) -> tuple[BenchRow, ...]:
    """A row for each cell and length, in that order."""
    found = list(taken)
    return tuple(
        _row(cell, length, [r for r in found if r.arm == cell.arm and r.slot.bucket == length])
        for length, cell in product(lengths, asked)
    )


def _row(cell: BenchCell, length: int, taken: Sequence[LatencyReading]) -> BenchRow:
    good = [r for r in taken if not r.void]
    ttft = [inf if r.failed or r.ttft is None else r.ttft for r in good]
    decode = [r.decode for r in good if r.decode is not None]
    return BenchRow(
        engine=cell.engine,
        thinking=cell.thinking,
        stream=cell.stream,
        length=length,
        n=len(good),
        failed=sum(bool(r.failed) for r in good),
        void=len(taken) - len(good),
        thought=sum(r.thought for r in good),
        ttft_median=quantile(ttft, 0.5),
        ttft_p95=quantile(ttft, 0.95),
        sentence_median=quantile([r.first_sentence for r in good if r.first_sentence is not None], 0.5),
        decode_median=quantile(decode, 0.5),
        decode_p05=quantile(decode, 0.05),
        why=next((r.failed or r.void for r in taken if r.failed or r.void), ""),
    )


def quantile(values: Iterable[float], q: float) -> float | None:
    """The `q` quantile: the smallest value that a share `q` of the values does not exceed; None without values."""
    ordered = sorted(values)
    return ordered[max(0, -int(-q * len(ordered) // 1) - 1)] if ordered else None


TITLES: Final = (
    "engine", "thinking", "reply", "prompt", "n", "failed",
    "first content", "p95", "first sentence", "decode", "slow 5 %",
)  # fmt: skip


def words(row: BenchRow) -> tuple[str, ...]:
    """The cells of one line of the table."""
    thinking = (
        f"on, {row.thought} thought"
        if row.thinking
        else f"off{f', {row.thought} thought' if row.thought else ''}"
    )
    return (
        row.engine,
        thinking,
        "streamed" if row.stream else "whole",
        str(row.length),
        str(row.n) + (f" (+{row.void} void)" if row.void else ""),
        str(row.failed or "-"),
        _ms(row.ttft_median),
        _ms(row.ttft_p95),
        _ms(row.sentence_median),
        _ms(row.decode_median),
        _ms(row.decode_p05),
    )


def _ms(value: float | None) -> str:
    if value is None:
        return "-"
    return "never" if isinf(value) else f"{value:.0f}" if value >= 100 else f"{value:.1f}"
