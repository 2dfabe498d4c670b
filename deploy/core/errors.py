"""The errors of this floor, as one tree.

    DeployError
     +- SpecError            an engine's configuration is wrong; names the engine and the field
     |   +- FlagError        one of its `args` is unknown, repeated or has a bad value
     +- WeightsError         the weights are not where the spec says, or not exactly one file
     +- PinError             the lock of images, or what is to be pinned, cannot be read
     +- EngineError          a correctly configured engine failed
     |   +- StartFailed      it never streamed a token; carries the log's last lines
     |   |   +- StartTimeout it did not stream a token before the deadline
     |   +- StartCancelled   `stop()` came while `start()` was waiting
     +- DockerError          the Docker Engine refuses, does not answer, or its SDK is missing
     +- LeaseHeld            another engine is being loaded; says which operation
     +- IllegalTransition    a bug: the supervisor received an event that is illegal in its state

Callers translate these into HTTP statuses or exit codes.
"""


class DeployError(Exception):
    """The root of the tree."""


class SpecError(DeployError):
    """An engine's configuration is wrong; the message names the engine and the field."""

    def __init__(self, engine: str, field: str, why: str) -> None:
        super().__init__(f"engine {engine!r}: {field}: {why}")
        self.engine = engine
        self.field = field
        self.why = why


class FlagError(SpecError):
    """One of an engine's `args` is unknown, repeated or has a bad value."""

    def __init__(self, engine: str, why: str) -> None:
        super().__init__(engine, "args", why)


class WeightsError(DeployError):
    """The weights are missing, incomplete, or not exactly one file."""


class PinError(DeployError):
    """The lock of images cannot be read, or names no digest."""


class EngineError(DeployError):
    """A correctly configured engine failed."""

    def __init__(self, engine: str, why: str) -> None:
        super().__init__(f"engine {engine!r}: {why}")
        self.engine = engine
        self.why = why


class StartFailed(EngineError):
    """The engine never streamed a token; `log_tail` holds its log's last lines, oldest first."""

    def __init__(self, engine: str, why: str, log_tail: tuple[str, ...] = ()) -> None:
        super().__init__(engine, "\n  ".join((why, *log_tail)))
        self.log_tail = log_tail


class StartTimeout(StartFailed):
    """The engine did not stream a token before its deadline."""


class StartRefused(StartFailed):
    """The engine cannot start with this configuration: another attempt would fail in the same way."""

    refused = True


class StartCancelled(EngineError):
    """`stop()` was called while `start()` was still waiting."""


class DockerError(DeployError):
    """The Docker Engine refused (`status` is HTTP's), did not answer, or its SDK is `missing`."""

    def __init__(self, why: str, *, status: int | None = None, missing: bool = False) -> None:
        super().__init__(why)
        self.status = status
        self.missing = missing

    @property
    def is_final(self) -> bool:
        """Whether the same request would be refused again."""
        return self.missing or self.status is not None


class LeaseHeld(DeployError):
    """Another engine is being loaded; `holder` names the operation."""

    def __init__(self, holder: str) -> None:
        super().__init__(f"another engine is being loaded, by {holder}; two at once can wedge the machine")
        self.holder = holder


class IllegalTransition(DeployError):
    """The supervisor received an event that is illegal in its state; nothing was changed."""
