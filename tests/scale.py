"""How large the repeated parts of the tests are: `TEST_SCALE=quick` (the default, and CI's) or `full` (nightly)."""

import os
from typing import TypeVar

SCALES = ("quick", "full")
SCALE = os.environ.get("TEST_SCALE") or "quick"
"""The scale of this run."""

PATIENCE = 60.0
"""Seconds after which a wait for something that must happen has failed, however busy the machine is."""

UNSHRUNK = "unshrunk"
"""Hypothesis' profile for who only wants to know whether a test fails: it looks for no simpler example that fails."""

if SCALE not in SCALES:
    raise SystemExit(f"TEST_SCALE={SCALE}: it must be one of {', '.join(SCALES)}")


Amount = TypeVar("Amount")


def scaled(quick: Amount, full: Amount) -> Amount:
    """What this run takes: a count of promotions, kills, cancels, examples, or which of two policies."""
    return full if SCALE == "full" else quick
