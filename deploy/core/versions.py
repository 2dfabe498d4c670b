"""Comparison of versions as programs print them. Pure."""

import re
from typing import Final

_NUMBERS: Final = re.compile(r"\d+(?:\.\d+)*")


def numbers(version: str) -> tuple[int, ...]:
    """The first dotted numbers of a version: "v0.24.0-ubuntu2404" is (0, 24, 0). () without one."""
    found = _NUMBERS.search(version)
    return tuple(int(part) for part in found[0].split(".")) if found else ()


def at_least(version: str, floor: str) -> bool:
    """Whether a version is `floor` or later; 0.24 equals 0.24.0."""
    ours, its = numbers(version), numbers(floor)
    width = max(len(ours), len(its))
    return bool(ours) and ours + (0,) * (width - len(ours)) >= its + (0,) * (width - len(its))
