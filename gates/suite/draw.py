"""Draws some prompts of a suite, gate by gate, for a short run; by their ids alone, so that nobody can draw until it passes. Pure."""

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import replace

from gates.contracts.case import Suite, conversations


def seeded_shuffle(seed: str, ids: Iterable[str]) -> list[str]:
    """The ids by the SHA-256 of "<seed> <id>": the first form stage 1, the next stage 2, both exchangeable, as rule A's curve requires."""
    return sorted(ids, key=lambda name: hashlib.sha256(f"{seed} {name}".encode()).digest())


def drawn(suite: Suite, sizes: Mapping[str, int]) -> Suite:
    """The suite with at least so many of each gate's stage 1 prompts, in its own order; the whole suite without sizes. The digest stays."""
    if not sizes:
        return suite
    first = {case.id: case for case in suite.cases if case.stage == 1}
    order = seeded_shuffle("draw", first)
    kept: set[str] = set()
    for gate, size in sizes.items():
        of_gate = [name for name in order if gate in first[name].gates]
        have = sum(name in kept for name in of_gate)
        kept.update([name for name in of_gate if name not in kept][: max(0, size - have)])
    return replace(suite, cases=tuple(case for case in suite.cases if case.id in kept))


def order_seed(suite: str, candidate: str) -> str:
    """The seed of a sequential run's order, from the digests of the suite and of the candidate: nobody can choose it."""
    return hashlib.sha256(f"order {suite} {candidate}".encode()).hexdigest()[:16]


def in_random_order(suite: Suite, seed: str) -> Suite:
    """The suite for a sequential run: its conversations in the seed's order, and all in stage 1. The digest stays."""
    talks = conversations({case.id: case.messages for case in suite.cases})
    place = {talk: i for i, talk in enumerate(seeded_shuffle(seed, set(talks.values())))}
    ordered = sorted(suite.cases, key=lambda case: place[talks[case.id]])
    return replace(suite, cases=tuple(replace(case, stage=1) for case in ordered))
