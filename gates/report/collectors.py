"""Collects parts of a statement from a run's results: tallies, failures, distributions, samples. Pure."""

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from gates.contracts.verdict import CaseResult, Outcome
from gates.report.statement import CaseFailure, Distribution, GateTally, SampleEntry, SampleIndex

MAX_WHY: Final = 240  # characters of evidence; the whole reply is in samples.jsonl
MAX_POINTS: Final = 201  # a resolution of half a percent


def tallies(results: Mapping[str, Iterable[CaseResult]]) -> tuple[GateTally, ...]:
    """The number of ok, bad and lost cases per gate and arm, over all cases and over the named ones."""
    counts: dict[tuple[str, str, bool], Counter[Outcome]] = {}
    for arm, cases in results.items():
        for case in cases:
            for named in (False, True) if case.named else (False,):
                counts.setdefault((case.gate, arm, named), Counter())[case.outcome] += 1
    return tuple(GateTally(*key, c["ok"], c["bad"], c["lost"]) for key, c in counts.items())


def failures(results: Mapping[str, Iterable[CaseResult]]) -> tuple[CaseFailure, ...]:
    """Every case that was not ok, with its evidence on one line of at most `MAX_WHY` characters."""
    return tuple(
        CaseFailure(case.gate, arm, case.case, case.outcome, case.named, one_line(case.why))
        for arm, cases in results.items()
        for case in cases
        if case.outcome != "ok"
    )


def one_line(text: str) -> str:
    """Evidence on one line of at most `MAX_WHY` characters. It quotes a model's output, which may not be valid UTF-8."""
    line = " ".join(text.encode("utf-8", "replace").decode().split())
    return line if len(line) <= MAX_WHY else line[: MAX_WHY - 1] + "…"


def distribution(gate: str, arm: str, unit: str, values: Sequence[float]) -> Distribution:
    """Measured values, reduced to at most `MAX_POINTS` order statistics, the smallest and the largest among them."""
    ordered, n = sorted(values), len(values)
    if n > MAX_POINTS:
        step = (n - 1) / (MAX_POINTS - 1)
        ordered = [ordered[round(i * step)] for i in range(MAX_POINTS)]
    return Distribution(gate, arm, unit, n, tuple(round(value, 3) for value in ordered))


def sample_index(lines: Iterable[bytes], outcomes: Mapping[str, Outcome]) -> SampleIndex:
    """The index of a run's samples file, with each sample's worst outcome; unjudged samples are "ok" unless they have a fault."""
    whole, found = hashlib.sha256(), list[SampleEntry]()
    for data in lines:
        whole.update(data)
        line = json.loads(data)
        outcome = outcomes.get(line["id"]) or ("lost" if line["fault"] else "ok")
        key, digest = line["key"], hashlib.sha256(data).hexdigest()
        found.append(SampleEntry(line["id"], key["case"], key["arm"], outcome, digest))
    return SampleIndex(f"sha256:{whole.hexdigest()}", tuple(found))
