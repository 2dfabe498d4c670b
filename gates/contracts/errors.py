"""What can go wrong in this floor; every message is one line for a person.

GatesError
├── ArtefactError   a folder or manifest that is no artefact
├── SuiteError      a suite that cannot be run as it stands
├── PolicyError     a policy that says nothing, or contradicts itself
├── SamplesError    a ledger of samples that is not this run's, or is damaged
├── RunError        the run could not go on (the model failing its prompts is no error)
├── KeyFileError    a key that cannot sign, or cannot be trusted, as it lies there
└── ReportError     a report that does not prove what it says; `code` names why
"""

from __future__ import annotations


class GatesError(ValueError):
    """The root of the tree."""


class ArtefactError(GatesError):
    """A folder or a manifest that is not an artefact."""


class SuiteError(GatesError):
    """A suite's file, line and field that cannot be used, and what to change."""


class PolicyError(GatesError):
    """A policy's key that cannot be used, and what to change."""


class SamplesError(GatesError):
    """A samples file of another run, or with a damaged line."""


class RunError(GatesError):
    """The run cannot go on: an engine is gone, a baseline is of another model."""


class KeyFileError(GatesError):
    """A key file that is missing, readable by others, or not an Ed25519 key; and what to do."""


class ReportError(GatesError):
    """A report that is rejected. `code` is one of the codes that promotion answers with."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code
