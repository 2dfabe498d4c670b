"""The flags of `vllm serve`, to report a misspelt one before a container is started.

The list is that of one version; other versions may have more, so an unknown flag is a warning, not an error.
"""

from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Final

from gates.decode.decoder import nearest

VERSION: Final = "0.24.0"
_LIST: Final = Path(__file__).with_name("vllm_flags.txt")


@cache
def known() -> frozenset[str]:
    """Every long flag, with dashes."""
    lines = _LIST.read_text("utf-8").splitlines()
    return frozenset(line for line in lines if line.startswith("--"))


def odd_flag(args: Sequence[str]) -> str | None:
    """The first unknown flag, with the nearest known one. Short flags and values are skipped.

    vLLM accepts underscores for dashes, `--no-` before a switch, and `--config.key` for a key of a JSON value.
    """
    for word in args:
        name = word.partition("=")[0].partition(".")[0].replace("_", "-")
        if not name.startswith("--") or name in known() or "--" + name.removeprefix("--no-") in known():
            continue
        hint = nearest(name, known())
        return f"{name} is not a flag of vLLM {VERSION}{hint if 'did you mean' in hint else ''}"
    return None
