"""The errors of the registry, as one tree.

    RegistryError
     +- RegistryLocked     another process writes here; a state folder belongs to one gateway
     +- NotARegistry       the file is not a registry, or is damaged
     +- RegistryTooNew     it was written by a later version of this program
     +- StorageFailed      the disk or the file system failed; nothing was changed
     |   +- StorageFull      no space, no quota, or a limit on the file's size
     |   +- StorageLocked    another program holds the database
     |   +- StorageMissing   the file that was opened is gone
     +- UnknownRow         the row that was asked for, or referred to, does not exist
     +- Conflict           it exists already, and differs
     |   +- GenerationMoved  an alias was moved by somebody else since it was read
     |   +- OperationUnderWay  the model has an unfinished operation; `operation` is its id
     |   +- KeyReused      the idempotency key was used for a different request
     +- ChainBroken        the event table was altered; `seq` is the first bad row

An error changes nothing. The caller translates these into HTTP or exit codes.
"""


class RegistryError(Exception):
    """The root of the tree; the message is one line that says what to do."""


class RegistryLocked(RegistryError):
    """Another process writes to this registry."""


class NotARegistry(RegistryError):
    """The file is not a registry, or is damaged."""


class RegistryTooNew(RegistryError):
    """The file was written by a later version of this program."""


class StorageFailed(RegistryError):
    """SQLite or the file system failed: for example the file is read-only, or a page is damaged.

    `code` is the error code for operators.
    """

    code = "state_unavailable"


class StorageFull(StorageFailed):
    """No space, no quota, or a limit on the file's size."""

    code = "state_full"


class StorageLocked(StorageFailed):
    """Another program holds the database."""

    code = "state_locked"


class StorageMissing(StorageFailed):
    """The file that was opened is gone."""

    code = "state_missing"


class UnknownRow(RegistryError):
    """The row that was asked for, or referred to, does not exist."""


class Conflict(RegistryError):
    """The row exists already and differs."""


class GenerationMoved(Conflict):
    """An alias has moved since it was read."""


class OperationUnderWay(Conflict):
    """The model has an unfinished operation."""

    def __init__(self, model: str, operation: str) -> None:
        super().__init__(f"{model} has an operation under way: {operation}; wait for it, or cancel it")
        self.operation = operation


class KeyReused(Conflict):
    """The idempotency key was used for a different request."""


class ChainBroken(RegistryError):
    """The event table was altered."""

    def __init__(self, seq: int, why: str) -> None:
        super().__init__(f"event {seq}: {why}; this and what follows cannot be trusted")
        self.seq = seq
        self.why = why
