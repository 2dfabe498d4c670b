"""What can go wrong in this floor; every message is one line for a person.

QuantizerError
├── RecipeError        a recipe that cannot be used, on this model or at all
├── SourceError        a model folder that is not there, broken, or of an architecture that is not known here
├── DataError          conversations that cannot be read, rendered or learned from
├── ExportError        the result could not be written; nothing that looks whole was left
├── CheckpointError    a checkpoint that is damaged, or of another run
└── UnavailableError   a part that is not installed, or a way that ends in nothing a server can load

`exit_code` is what the command line ends with: sysexits.h.
"""

from __future__ import annotations

from typing import ClassVar, Final

EX_DATAERR: Final = 65
EX_NOINPUT: Final = 66
EX_UNAVAILABLE: Final = 69
EX_CANTCREAT: Final = 73
EX_CONFIG: Final = 78


class QuantizerError(ValueError):
    """The root of the tree."""

    exit_code: ClassVar[int] = EX_DATAERR


class RecipeError(QuantizerError):
    """A recipe's key, pattern or value that cannot be used, and what to change."""

    exit_code = EX_CONFIG


class SourceError(QuantizerError):
    """A model folder that cannot be quantized as it lies there."""

    exit_code = EX_NOINPUT


class DataError(QuantizerError):
    """Training or calibration data that cannot be used: the file, the line and why."""


class ExportError(QuantizerError):
    """The result could not be written."""

    exit_code = EX_CANTCREAT


class CheckpointError(QuantizerError):
    """A training checkpoint that cannot be resumed from."""


class UnavailableError(QuantizerError):
    """Something is not installed, or a strategy has no servable result; and what to do instead."""

    exit_code = EX_UNAVAILABLE
