"""What an operation of surgery takes and gives: the server that a folder is prepared for, and the result.

* `WRAPS`: text-only `qwen3_5_text` folders load in vLLM since 0.28 (vllm-project/vllm pull requests 50210, 50355).
* `TRANSFORMERS_5`: vLLM up to 0.19 comes with transformers 4, which has no TokenizersBackend.
"""

import re
from dataclasses import asdict, dataclass
from typing import Any, Final, Literal

WRAPS: Final = (0, 28)
TRANSFORMERS_5: Final = (0, 20)
W4A16_SINCE: Final = (0, 24)
NEWEST: Final = "vllm-0.33"
TEXT: Final = "text"
State = Literal["fine", "needed", "refused"]
_VLLM: Final = re.compile(r"vllm-(\d{1,3})\.(\d{1,3})")


@dataclass(frozen=True, slots=True)
class Server:
    """name: as it was requested. version: of vLLM; None for "text", the bare text model."""

    name: str
    version: tuple[int, int] | None

    def before(self, version: tuple[int, int]) -> bool:
        return self.version is not None and self.version < version

    @property
    def wraps(self) -> bool:
        """Whether a Qwen3.5 text model must look like a vision-language model."""
        return self.before(WRAPS)

    @property
    def transformers_4(self) -> bool:
        return self.before(TRANSFORMERS_5)


def parse_server(name: str) -> Server:
    """Parse "vllm-0.19" or "text". Raises ValueError with one line."""
    if name == TEXT:
        return Server(name, None)
    found = _VLLM.fullmatch(name)
    if not found:
        raise ValueError(f"{name!a} is no server that is known: vllm-0.19, vllm-0.24, … or text")
    return Server(name, (int(found[1]), int(found[2])))


@dataclass(frozen=True, slots=True)
class OperationResult:
    """operation: its name. state: nothing to do, to be done, or impossible. why: one line. changes: one line for
    each change."""

    operation: str
    state: State
    why: str
    changes: tuple[str, ...] = ()

    def as_json(self) -> dict[str, Any]:
        return {**asdict(self), "changes": list(self.changes)}


def fine(operation: str, why: str) -> OperationResult:
    return OperationResult(operation, "fine", why)


def needed(operation: str, why: str, changes: tuple[str, ...]) -> OperationResult:
    return OperationResult(operation, "needed", why, changes)


def refused(operation: str, why: str) -> OperationResult:
    return OperationResult(operation, "refused", why)
