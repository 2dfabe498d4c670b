"""How large the repeated parts of the tests are: `TEST_SCALE=quick` (the default, and CI's) or `full` (nightly)."""

import os

SCALES = ("quick", "full")
SCALE = os.environ.get("TEST_SCALE") or "quick"
"""The scale of this run."""

PATIENCE = 60.0
"""Seconds after which a wait for something that must happen has failed, however busy the machine is."""

if SCALE not in SCALES:
    raise SystemExit(f"TEST_SCALE={SCALE}: it must be one of {', '.join(SCALES)}")


def scaled(quick: int, full: int) -> int:
    """A count of this run: promotions, kills, cancels, examples."""
    return full if SCALE == "full" else quick
