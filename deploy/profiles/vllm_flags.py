"""Which flags `vllm serve` knows, so that a misspelt one is told before a container has started for a minute.

The list is that of one version; another may know more, so what is not in it is doubtful, not wrong.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Final

from gates.policy.decoder import nearest

VERSION: Final = "0.24.0"
_LIST: Final = Path(__file__).with_name("vllm_flags.txt")


@cache
def known() -> frozenset[str]:
    """Every long flag, with dashes."""
    lines = _LIST.read_text("utf-8").splitlines()
    return frozenset(line for line in lines if line.startswith("--"))


def unknown(args: Sequence[str]) -> Iterator[str]:
    """A line for each flag that is not known, with the nearest. Short ones and values are passed over.

    vLLM takes underscores for dashes, `--no-` before a switch, and `--config.key` into a JSON value.
    """
    for word in args:
        name = word.partition("=")[0].partition(".")[0].replace("_", "-")
        if not name.startswith("--") or name in known() or "--" + name.removeprefix("--no-") in known():
            continue
        hint = nearest(name, known())
        yield f"{name} is not a flag of vLLM {VERSION}{hint if 'did you mean' in hint else ''}"
