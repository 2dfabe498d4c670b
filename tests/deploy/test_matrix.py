"""The bench's cells, asks and rows, from values."""

from math import inf
from typing import Any

from deploy.profiles.matrix import BenchCell, cells, pick, plan, rows, words
from gates.run.latency import LatencyReading, LatencySlot, Schedule
from gates.run.target import Target
from gates.suite.load import load_suite

SUITE = load_suite("annie-nano")


def target(name: str, dialect: Any = "llama-server") -> Target:
    return Target(url="http://127.0.0.1:1", served_model="m", dialect=dialect, artefact=name, engine=name)


ENGINES = {"a": target("a"), "b": target("b", "vllm")}
ALL = cells(ENGINES, (False, True), (True, False))
SCHEDULE = Schedule(buckets=(100,), blocks=2, pause_s=(0.0, 0.0), max_tokens=64)


def reading(cell: BenchCell, ttft: float | None, **more: Any) -> LatencyReading:
    return LatencyReading(cell.arm, LatencySlot("c", 100, 0, 0), ttft=ttft, **more)


def test_each_prompt_is_asked_of_every_cell_twice_a_round_and_warm_ups_are_not_kept() -> None:
    phase = plan(SUITE, ALL, ENGINES, pick(SUITE, 2), SCHEDULE)
    kept = [ask for ask in phase if ask.recorded]
    assert len(ALL) == 8 and len(kept) == 8 * 2 * 2 * 2
    assert len(phase) > len(kept) and not any(ask.recorded for ask in phase[: len(phase) - len(kept)])
    assert len({ask.key.digest for ask in kept}) == len(kept)


def test_a_row_holds_the_median_and_the_tail_and_a_failure_is_the_worst_value() -> None:
    cell = ALL[0]
    good = [reading(cell, float(t), decode=30.0 + t, thought=True) for t in range(1, 20)]
    (row,) = rows([cell], [100], [*good, reading(cell, None, failed="timeout: nothing came")])
    assert (row.n, row.failed, row.thought, row.void) == (20, 1, 19, 0)
    assert (row.ttft_median, row.ttft_p95) == (10.0, 19.0)
    assert (row.decode_median, row.decode_p05) == (40.0, 31.0)
    assert row.why == "timeout: nothing came"
    (bad,) = rows([cell], [100], [reading(cell, None, failed="x")])
    assert bad.ttft_median == inf and "never" in words(bad)
