"""The errors of the registry. An error changes nothing."""

from app.errors.tree import StateUnavailable


class RegistryError(Exception):
    """The root of the tree; the message is one line that says what to do."""


class RegistryLocked(RegistryError):
    """Another process writes to this registry: a state folder belongs to one gateway."""


class NotARegistry(RegistryError):
    """The file is not a registry, is damaged, or is of a later version of this program."""


class StorageFailed(RegistryError, StateUnavailable):
    """SQLite or the file system failed. `code`: `state_full`, `state_locked` (another program holds the database),
    `state_missing` (the opened file is gone) or, of other faults, `state_unavailable`."""


class Conflict(RegistryError):
    """The change does not fit what is there: a row exists already and differs, or does not exist."""


class GenerationMoved(Conflict):
    """An alias has moved since it was read."""


class ChainBroken(RegistryError):
    """The event table was altered; `seq` is the first bad event."""

    def __init__(self, seq: int, why: str) -> None:
        super().__init__(f"event {seq}: {why}; this and what follows cannot be trusted")
        self.seq = seq
        self.why = why
