"""What an engine cannot be blamed for: rows that its dialect has no words for. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from app.conformance.suite import Result
from deploy.engine.spec import Dialect

_SILENT = "OpenAI's API has no word for it: this engine's thinking can neither be asked for nor switched off nor limited"
GAPS: Mapping[Dialect, Mapping[str, str]] = {
    "openai": dict.fromkeys(
        (
            "thinking off: no token of it is paid for", "thinking on", "thinking budget 0", "thinking budget 1",
            "thinking budget 8", "thinking budget 64", "thinking time budget", "a thought, then a call",
            "a thought cut by max_tokens",
        ),
        _SILENT,
    ),
}  # fmt: skip


@dataclass(frozen=True)
class Heard:
    """One row as it is shown. `yes`: right. `gap`: known, and why. `no`: wrong, and what was heard."""

    name: str
    heard: Literal["yes", "gap", "no"]
    why: str = ""


def judged(result: Result, dialect: Dialect) -> Heard:
    """A row's result, told apart from what was known before; a row that came right is right."""
    if result.right:
        return Heard(result.name, "yes")
    reason = GAPS.get(dialect, {}).get(result.name)
    return Heard(result.name, "no", result.why) if reason is None else Heard(result.name, "gap", reason)
