"""Draws some prompts of a suite, group by group, for a short run. Pure.

A policy names how many of each gate's prompts are asked (`draw`). Which ones is fixed by their ids alone, so that
everybody draws the same, and nobody can draw until the verdict is a good one.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import replace

from gates.contracts.case import Suite


def seeded_shuffle(seed: str, ids: Iterable[str]) -> list[str]:
    """The ids in a seeded random order: sorted by the SHA-256 of "<seed> <id>".

    The first of them form stage 1 and the next stage 2. Both stages are then exchangeable, as the
    operating curve of rule A requires. An id keeps its relative position when others are added or removed.
    """
    return sorted(ids, key=lambda name: hashlib.sha256(f"{seed} {name}".encode()).digest())


def drawn(suite: Suite, sizes: Mapping[str, int]) -> Suite:
    """The suite with so many of each gate's stage 1 prompts, in its own order; the whole suite without sizes.

    A prompt counts for all of its gates, so that a gate may get more prompts than it was given, never fewer while
    the suite has them. Its digest stays that of the whole suite: the policy's says what was drawn from it.
    """
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
