"""Everything that the registry refuses, as one tree.

    RegistryError
     +- RegistryLocked     another process writes here; there is one gateway to a state folder
     +- NotARegistry       the file is something else, or is damaged
     +- RegistryTooNew     it was written by a later version of this program
     +- StorageFailed      the disk or the file system did not do it; nothing was changed
     |   +- StorageFull      no space, no quota, or a limit on the file's size
     |   +- StorageLocked    another program holds the database
     |   +- StorageMissing   the file that was opened is not there any more
     +- UnknownRow         what was asked for, or referred to, is not there
     +- Conflict           it is there already, and is not the same
     |   +- GenerationMoved  an alias was moved by somebody else since it was read
     |   +- OperationUnderWay  the model has an unfinished operation; `operation` is its id
     |   +- KeyReused      the idempotency key came with another request before
     +- ChainBroken        the event table is not what was written; `seq` is the first bad row

A refusal leaves everything as it was. The caller translates these into HTTP or exit codes.
"""


class RegistryError(Exception):
    """The root of the tree; the message is one line that says what to do."""


class RegistryLocked(RegistryError):
    """Another process writes to this registry."""


class NotARegistry(RegistryError):
    """The file is something else, or is damaged."""


class RegistryTooNew(RegistryError):
    """The file was written by a later version of this program."""


class StorageFailed(RegistryError):
    """SQLite or the file system could not do it: the file is read-only, a page is damaged.

    `code` is what operators are told.
    """

    code = "state_unavailable"


class StorageFull(StorageFailed):
    """No space, no quota, or a limit on the file's size."""

    code = "state_full"


class StorageLocked(StorageFailed):
    """Another program holds the database."""

    code = "state_locked"


class StorageMissing(StorageFailed):
    """The file that was opened is not there any more."""

    code = "state_missing"


class UnknownRow(RegistryError):
    """What was asked for, or referred to, is not there."""


class Conflict(RegistryError):
    """It is there already, and is not the same."""


class GenerationMoved(Conflict):
    """An alias was moved by somebody else since it was read."""


class OperationUnderWay(Conflict):
    """The model has an unfinished operation."""

    def __init__(self, model: str, operation: str) -> None:
        super().__init__(f"{model} has an operation under way: {operation}; wait for it, or cancel it")
        self.operation = operation


class KeyReused(Conflict):
    """The idempotency key came with another request before."""


class ChainBroken(RegistryError):
    """The event table is not what was written."""

    def __init__(self, seq: int, why: str) -> None:
        super().__init__(f"event {seq}: {why}; this and what follows cannot be trusted")
        self.seq = seq
        self.why = why
