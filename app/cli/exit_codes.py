"""From an error to one line on stderr and an exit code, for all commands."""

import sys
from collections.abc import Callable, Mapping
from typing import Final

INTERRUPTED: Final = 130


class UsageError(Exception):
    """Flags contradict each other, or name something unknown."""


def exit_code(
    command: str,
    work: Callable[[], int],
    codes: Mapping[type[Exception], int],
    *,
    words: Callable[[Exception], object] = str,
    stopped: str = "",
) -> int:
    """What the work returns, or the code of its error (the first kind in `codes` that fits). `stopped` is said after Ctrl-C."""
    try:
        return work()
    except KeyboardInterrupt:
        return fail(command, stopped, INTERRUPTED) if stopped else INTERRUPTED
    except tuple(codes) as error:
        code = next(code for kind, code in codes.items() if isinstance(error, kind))
        return fail(command, words(error), code)


def fail(command: str, why: object, code: int) -> int:
    """Say why a command failed; its exit code."""
    print(f"{command}: {why}", file=sys.stderr)
    return code
