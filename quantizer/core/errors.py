"""The errors of the quantizer. Every message is one line for a person.

  QuantizerError
  ├── RecipeError        the recipe cannot be used, on this model or at all
  ├── SourceError        the model folder is missing, damaged, or of an unknown architecture
  ├── DataError          conversations cannot be read, rendered or trained on
  ├── ExportError        the result could not be written; nothing that looks complete was left behind
  ├── CheckpointError    a training checkpoint is damaged, or belongs to another run
  ├── UnavailableError   a component is not installed, or no server can load what this method makes
  └── ResourceError      the machine has not the memory or the disk that a job takes

`exit_code` is the exit code of the command line (sysexits.h).
"""

from os import EX_CANTCREAT, EX_CONFIG, EX_DATAERR, EX_NOINPUT, EX_TEMPFAIL, EX_UNAVAILABLE
from typing import ClassVar


class QuantizerError(ValueError):
    """The base of all errors of the quantizer."""

    exit_code: ClassVar[int] = EX_DATAERR


class RecipeError(QuantizerError):
    """A recipe has a key, pattern or value that cannot be used. The message says what to change."""

    exit_code = EX_CONFIG


class SourceError(QuantizerError):
    """A model folder cannot be quantized as it is."""

    exit_code = EX_NOINPUT


class DataError(QuantizerError):
    """Training or calibration data cannot be used. The message names the file, the line and the reason."""


class ExportError(QuantizerError):
    """The result could not be written."""

    exit_code = EX_CANTCREAT


class CheckpointError(QuantizerError):
    """A training checkpoint cannot be resumed from."""


class UnavailableError(QuantizerError):
    """A component is not installed, or a method has no result that a server can load. The message says what to do
    instead."""

    exit_code = EX_UNAVAILABLE


class ResourceError(QuantizerError):
    """A job takes more memory or disk than this machine has to give now. The message says what to change."""

    exit_code = EX_TEMPFAIL


def first_line(error: BaseException) -> str:
    """Why something failed, in one line: the system's reason, the first line of the message, or the error's class."""
    message = (error.strerror if isinstance(error, OSError) else None) or str(error)
    return next(iter(message.strip().splitlines()), type(error).__name__)
