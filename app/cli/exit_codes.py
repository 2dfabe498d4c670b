"""From an error to one line on stderr and an exit code, for all commands."""

import sys
from collections.abc import Callable, Iterator
from os import EX_CONFIG, EX_DATAERR, EX_NOINPUT, EX_TEMPFAIL, EX_UNAVAILABLE, EX_USAGE
from typing import Final

INTERRUPTED: Final = 130


class CommandError(Exception):
    """A command cannot do what it was asked; the message is one line, and `code` its exit code."""

    def __init__(self, why: object, code: int) -> None:
        super().__init__(why)
        self.code = code


class UsageError(CommandError):
    """Flags contradict each other, or name something unknown."""

    def __init__(self, why: object) -> None:
        super().__init__(why, EX_USAGE)


def exit_code(command: str, work: Callable[[], int], stopped: str = "") -> int:
    """Run `work`; returns its exit code, or that of its error. After Ctrl-C the command prints `stopped`."""
    try:
        return work()
    except KeyboardInterrupt:
        return fail(command, stopped, INTERRUPTED) if stopped else INTERRUPTED
    except BrokenPipeError:
        raise
    except CommandError as error:
        return fail(command, error, error.code)
    except Exception as error:
        code = next((code for kind, code in _codes() if isinstance(error, kind)), None)
        if code is None:
            raise
        return fail(command, _words(error), code)


def fail(command: str, why: object, code: int) -> int:
    """Say why a command failed; its exit code."""
    print(f"{command}: {why}", file=sys.stderr)
    return code


def _codes() -> Iterator[tuple[type[Exception], int]]:
    """The errors of the floors below with their exit codes, the special ones first; imported once one is raised."""
    from app.config.config import ConfigError
    from app.errors.tree import MannersError
    from app.registry.errors import RegistryError
    from deploy.core import errors as deploy
    from gates.contracts import errors as gates

    yield ConfigError, EX_CONFIG
    yield deploy.SpecError, EX_USAGE
    yield from ((kind, EX_NOINPUT) for kind in (deploy.WeightsError, deploy.PinError))
    yield from ((kind, EX_TEMPFAIL) for kind in (deploy.DockerError, deploy.LeaseHeld, RegistryError))
    yield from ((kind, EX_UNAVAILABLE) for kind in (deploy.EngineError, gates.RunError, TimeoutError))
    yield deploy.DeployError, EX_CONFIG
    yield from ((kind, 1) for kind in (gates.ReportError, MannersError))
    yield gates.GatesError, EX_DATAERR
    yield OSError, EX_NOINPUT


def _words(error: Exception) -> str:
    if isinstance(error, OSError) and error.filename:
        return f"{error.filename}: {error.strerror}"
    code = getattr(error, "code", None)
    said = str(error) or "no answer came in time"
    return f"{code}: {said}" if isinstance(code, str) else said
