"""How a pool of cases is cut into stages: by lot, with a seed, so that anybody can draw it again. Pure."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable


def drawn(seed: str, ids: Iterable[str]) -> list[str]:
    """The ids in an order that nobody chose: by the SHA-256 of "<seed> <id>".

    The first of them make stage 1, the next stage 2, and the two are exchangeable, which rule A's
    operating curve rests on. An id keeps its place when others come or go.
    """
    return sorted(ids, key=lambda name: hashlib.sha256(f"{seed} {name}".encode()).digest())
