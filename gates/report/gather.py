"""Parts of a statement out of a run's results: tallies, failures, distributions, the samples' list. Pure."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from gates.contracts.errors import SamplesError
from gates.contracts.verdict import CaseResult, Outcome
from gates.report.statement import Distribution, Failure, SampleLine, Samples, Tally

MAX_WHY: Final = 240  # characters of evidence; the whole reply is in samples.jsonl
MAX_POINTS: Final = 201  # a distribution to half a percent


def tallies(results: Mapping[str, Iterable[CaseResult]]) -> tuple[Tally, ...]:
    """Per gate and arm, how many cases were ok, bad and lost: over all, and over the named ones.

    `results` maps an arm to its case results; gates come in the order in which they first appear.
    """
    counts: dict[tuple[str, str, bool], Counter[Outcome]] = {}
    for arm, cases in results.items():
        for case in cases:
            for named in (False, True) if case.named else (False,):
                counts.setdefault((case.gate, arm, named), Counter())[case.outcome] += 1
    return tuple(Tally(*key, c["ok"], c["bad"], c["lost"]) for key, c in counts.items())


def failures(results: Mapping[str, Iterable[CaseResult]]) -> tuple[Failure, ...]:
    """Every case that was not ok, with its evidence on one line, cut to `MAX_WHY` characters."""
    return tuple(
        Failure(case.gate, arm, case.case, case.outcome, case.named, _one_line(case.why))
        for arm, cases in results.items()
        for case in cases
        if case.outcome != "ok"
    )


def _one_line(text: str) -> str:
    # Evidence quotes a model, and its bytes need not have been UTF-8.
    line = " ".join(text.encode("utf-8", "replace").decode().split())
    return line if len(line) <= MAX_WHY else line[: MAX_WHY - 1] + "…"


def distribution(gate: str, arm: str, unit: str, values: Sequence[float]) -> Distribution:
    """A distribution of measured values, thinned to at most `MAX_POINTS` order statistics.

    Point i of m is the value of rank round(i (n-1) / (m-1)), so the smallest and the largest stay.
    """
    ordered, n = sorted(values), len(values)
    if n > MAX_POINTS:
        step = (n - 1) / (MAX_POINTS - 1)
        ordered = [ordered[round(i * step)] for i in range(MAX_POINTS)]
    return Distribution(gate, arm, unit, n, tuple(round(value, 3) for value in ordered))


def ledger(lines: Iterable[bytes], outcomes: Mapping[str, Outcome]) -> Samples:
    """The list of a samples file: its lines with their line breaks, and each sample's worst outcome.

    `outcomes` maps a key's digest to an outcome; a sample that no gate judged (a warm-up, a latency
    probe) has none and is "ok", unless it has a fault. Raises SamplesError for a damaged or doubled line.
    """
    whole, found = hashlib.sha256(), dict[str, SampleLine]()
    for number, data in enumerate(lines, start=1):
        whole.update(data)
        try:
            document = json.loads(data)
            key, case, arm = document["id"], document["key"]["case"], document["key"]["arm"]
            outcome = outcomes.get(key) or ("lost" if document["fault"] else "ok")
        except (ValueError, LookupError, TypeError, RecursionError) as error:
            raise SamplesError(f"line {number} of the samples is not whole ({error})") from None
        if key in found:
            raise SamplesError(f"line {number} of the samples: {case} ({arm}) is there twice, with one key")
        found[key] = SampleLine(key, case, arm, outcome, hashlib.sha256(data).hexdigest())
    return Samples(f"sha256:{whole.hexdigest()}", tuple(found.values()))


def worst(outcomes: Iterable[tuple[str, Outcome]]) -> dict[str, Outcome]:
    """The worst outcome per key: bad before lost before ok."""
    order: tuple[Outcome, ...] = ("ok", "lost", "bad")
    found: dict[str, Outcome] = {}
    for key, outcome in outcomes:
        found[key] = max(found.get(key, "ok"), outcome, key=order.index)
    return found
