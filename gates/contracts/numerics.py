"""What computed an engine's answers, beside its build and its arguments, and how two of them differ. Pure.

The same weights answer differently where a kernel rounds its inputs to four bits, or the KV cache is in eight.
"""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Final, Literal, NamedTuple, get_args

Part = Literal["kernel", "scheme", "kv_cache", "gpu"]
PARTS: Final[tuple[Part, ...]] = get_args(Part)
_WORDS: Final[dict[Part, str]] = {
    "kernel": "kernel", "scheme": "quantization scheme", "kv_cache": "KV cache", "gpu": "GPU"
}  # fmt: skip
Scheme = Literal["W4A16", "W4A4"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Numerics:
    """`kernel`: of the quantized layers, by the engine's name; `scheme`: W4A16 (weight-only) or W4A4; `gpu`: its name, or "none". None: not known."""

    kernel: str | None = None
    scheme: str | None = None
    kv_cache: str | None = None
    gpu: str | None = None

    def __str__(self) -> str:
        """All that is known, in one line."""
        known = [f"{_WORDS[part]} {value}" for part in PARTS if (value := getattr(self, part)) is not None]
        return ", ".join(known) or "nothing known"


class Difference(NamedTuple):
    """A part in which two engines compute differently, in words."""

    part: Part
    words: str


def differences(stated: Numerics, found: Numerics, *, unknown: bool = False) -> tuple[Difference, ...]:
    """How `found` differs from what a report states. What one side does not know differs only with `unknown`."""
    return tuple(
        Difference(part, f"{_WORDS[part]} was {_known(was)} in the report and is {_known(now)} here")
        for part in PARTS
        if (was := getattr(stated, part)) != (now := getattr(found, part))
        and (unknown or None not in (was, now))
    )


def permits(may_differ: Collection[Part], part: Part) -> bool:
    """Whether a part may differ. Another scheme is always another kernel."""
    return part in may_differ or (part == "kernel" and "scheme" in may_differ)


def _known(value: str | None) -> str:
    return "not known" if value is None else f"{value:.100}"
