"""Looking up a flag among an engine's `args`. Pure."""

from __future__ import annotations

from collections.abc import Sequence


def value_of(args: Sequence[str], name: str) -> str | None:
    """The value of `--name value` or `--name=value`, the last one; "" for a flag without; None if absent."""
    found = None
    for at, word in enumerate(args):
        flag, equals, value = word.partition("=")
        if flag != name:
            continue
        after = args[at + 1] if at + 1 < len(args) else "-"
        found = value if equals else "" if after.startswith("--") or after == "-" else after
    return found
