"""The errors of the gates. Every message is one line for a person."""


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


class ReportError(GatesError):
    """A report that is rejected. `code` is one of the codes that promotion returns to its caller."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code
