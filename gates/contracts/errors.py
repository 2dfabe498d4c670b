"""The errors of the gates. Every message is one line for a person."""

from typing import Literal


class GatesError(ValueError):
    """The root of the tree."""


class ManifestError(GatesError):
    """A folder or a manifest that is not a valid artefact."""


class SuiteError(GatesError):
    """A suite that cannot be used. The message names file, line and field, and what to change."""


class PolicyError(GatesError):
    """A policy that cannot be used. The message names the key and what to change."""


class SamplesError(GatesError):
    """A samples file that is damaged or belongs to another run."""


class RunError(GatesError):
    """The run cannot continue, for example because an engine does not answer."""


class KeyFileError(GatesError):
    """A key file that is missing, readable by others, or not an Ed25519 key. The message says what to do."""


Code = Literal[
    "report_missing",
    "report_signature",
    "report_stale",
    "verdict_not_pass",
    "mismatch_artefact",
    "mismatch_engine",
    "mismatch_numerics",
    "mismatch_suite",
    "mismatch_policy",
    "mismatch_model",
    "mismatch_running",
    "baseline_lineage",
]
"""The codes with which a report can be rejected. Promotion has two more of its own (revoked, busy)."""


class ReportError(GatesError):
    """A report that is rejected. `code` is one of the codes that promotion returns to its caller."""

    def __init__(self, code: Code, message: str) -> None:
        super().__init__(message)
        self.code = code
