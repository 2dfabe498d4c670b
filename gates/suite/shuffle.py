"""A reproducible random order, used to assign a pool of cases to stages. Pure."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable


def seeded_shuffle(seed: str, ids: Iterable[str]) -> list[str]:
    """The ids in a seeded random order: sorted by the SHA-256 of "<seed> <id>".

    The first of them form stage 1 and the next stage 2. Both stages are then exchangeable, as the
    operating curve of rule A requires. An id keeps its relative position when others are added or removed.
    """
    return sorted(ids, key=lambda name: hashlib.sha256(f"{seed} {name}".encode()).digest())
