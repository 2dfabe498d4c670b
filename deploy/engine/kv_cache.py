"""The flags that set the type of an engine's KV cache. Pure."""

from collections.abc import Sequence
from typing import Final

KV_FLAGS: Final = {
    "--cache-type-k": "K", "-ctk": "K", "--cache-type-v": "V", "-ctv": "V",
    "--kv-cache-dtype": "all", "--kv_cache_dtype": "all",
}  # fmt: skip
"""The flags, and what of the cache they set."""


def without_kv_flags(args: Sequence[str]) -> tuple[str, ...]:
    """The arguments without those that set the KV cache's type."""
    return tuple(word for word, flag in _flagged(args) if flag not in KV_FLAGS)


def kv_types(args: Sequence[str]) -> dict[str, str]:
    """The types by what they are of; the last flag counts."""
    found: dict[str, str] = {}
    for word, flag in _flagged(args):
        if flag in KV_FLAGS and word != flag:
            found[KV_FLAGS[flag]] = word.removeprefix(f"{flag}=")
    return found


def _flagged(args: Sequence[str]) -> list[tuple[str, str]]:
    """Each word with the KV flag that it is, or is the value of; with "" if it is neither."""
    pairs: list[tuple[str, str]] = []
    pending = ""
    for word in args:
        name = word.partition("=")[0]
        flag = pending or (name if name in KV_FLAGS else "")
        pairs.append((word, flag))
        pending = word if not pending and word in KV_FLAGS else ""
    return pairs
