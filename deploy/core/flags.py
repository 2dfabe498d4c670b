"""Looking up flags in an engine's `args`. Pure."""

from collections.abc import Sequence
from typing import Final

_PARTS: Final = {
    "K": ("--cache-type-k", "-ctk"),
    "V": ("--cache-type-v", "-ctv"),
    "all": ("--kv-cache-dtype", "--kv_cache_dtype"),
}
"""The parts of the KV cache, and the flags that set the type of each."""
KV_FLAGS: Final = frozenset(name for names in _PARTS.values() for name in names)


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


def without_kv_flags(args: Sequence[str]) -> tuple[str, ...]:
    """The arguments without those that set the KV cache's type, and without their values."""
    kept, is_value = [], False
    for word in args:
        name, equals, _ = word.partition("=")
        if not is_value and name not in KV_FLAGS:
            kept.append(word)
        is_value = not is_value and name in KV_FLAGS and not equals
    return tuple(kept)


def kv_types(args: Sequence[str]) -> dict[str, str]:
    """The types by what they are of; the last flag counts."""
    found = {part: flag_value(args, *names) for part, names in _PARTS.items()}
    return {part: value for part, value in found.items() if value}
