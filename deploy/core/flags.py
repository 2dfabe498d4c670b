"""Looking up a flag in an engine's `args`. Pure."""

from collections.abc import Sequence


def flag_value(args: Sequence[str], *names: str) -> str | None:
    """The last value of a flag, given as `--name value` or `--name=value`; "" if it has none, None if it is absent."""
    found = None
    for at, word in enumerate(args):
        flag, equals, value = word.partition("=")
        if flag not in names:
            continue
        after = args[at + 1] if at + 1 < len(args) else "-"
        found = value if equals else "" if after.startswith("--") or after == "-" else after
    return found
