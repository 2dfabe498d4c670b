"""From an error to one line on stderr and an exit code, for all commands."""

import argparse
import importlib
import sys
from os import EX_CONFIG, EX_DATAERR, EX_NOINPUT, EX_TEMPFAIL, EX_UNAVAILABLE, EX_USAGE
from typing import Any, Final

INTERRUPTED: Final = 130


class CommandError(Exception):
    """A command cannot do what it was asked, by default because of its flags; the message is one line, and `code` its exit code."""

    def __init__(self, why: object, code: int = EX_USAGE) -> None:
        super().__init__(why)
        self.code = code


def run(name: str, module: str, args: argparse.Namespace) -> int:
    """`run(args)` of a module of this folder; its exit code, or that of its error."""
    try:
        return int(importlib.import_module(f"app.cli.{module}").run(args))
    except KeyboardInterrupt:
        return INTERRUPTED
    except Exception as error:
        if (code := _code(error)) is None:
            raise
        print(f"manners {name}: {_words(error)}", file=sys.stderr)
        return code


def _code(error: Exception) -> int | None:
    """The exit code of an error of the floors below, which are imported once one is raised; None: it is a bug."""
    from app.config.config import ConfigError
    from app.errors.tree import MannersError
    from app.registry.errors import RegistryError
    from deploy.core import errors as deploy
    from gates.contracts import errors as gates

    codes: dict[Any, int | None] = {  # the special ones first
        BrokenPipeError: None,
        CommandError: getattr(error, "code", None),
        ConfigError: EX_CONFIG,
        deploy.SpecError: EX_USAGE,
        (deploy.WeightsError, deploy.PinError): EX_NOINPUT,
        (deploy.DockerError, deploy.LeaseHeld, RegistryError): EX_TEMPFAIL,
        (deploy.EngineError, gates.RunError, TimeoutError): EX_UNAVAILABLE,
        deploy.DeployError: EX_CONFIG,
        (gates.ReportError, MannersError): 1,
        gates.GatesError: EX_DATAERR,
        OSError: EX_NOINPUT,
    }
    return next((code for kinds, code in codes.items() if isinstance(error, kinds)), None)


def _words(error: Exception) -> str:
    if isinstance(error, OSError) and error.filename:
        return f"{error.filename}: {error.strerror}"
    code, said = getattr(error, "code", None), str(error) or "no answer came in time"
    return f"{code}: {said}" if isinstance(code, str) else said
