"""One record: what a caller asked and what became of it, redacted, as one line of JSON. Pure."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any, Final

from app.telemetry.redact import Redactor

SCHEMA: Final = "manners/shadow/v1"

SAMPLING: Final = (
    "temperature", "top_p", "top_k", "min_p", "presence_penalty", "frequency_penalty",
    "repetition_penalty", "max_tokens", "max_completion_tokens", "stop",
)  # fmt: skip
_SHAPES: Final = ("tools", "tool_choice", "parallel_tool_calls", "response_format", *SAMPLING)


@dataclass(frozen=True, slots=True)
class Taken:
    """A finished chat as the gateway holds it, not redacted: it lives in memory only.

    `id` is the record's own, and nothing of the caller's is in it. `calls` are names and arguments as they went out. `wait` is seconds to the first content, None
    where a reply was not streamed.
    """

    id: str
    at: datetime
    model: str
    engine: str
    thinking: bool
    body: Mapping[str, Any]
    calls: tuple[tuple[str, str], ...]
    breaches: frozenset[str]
    wait: float | None


@dataclass(frozen=True, slots=True)
class Call:
    """`arguments` is the JSON value; a text, if it was no JSON."""

    name: str
    arguments: Any


@dataclass(frozen=True, slots=True)
class Record:
    """As it is kept. `at` is UTC, RFC 3339; `dropped` counts texts and values beyond the limits."""

    id: str
    at: str
    model: str
    engine: str
    thinking: bool
    request: Mapping[str, Any]
    calls: tuple[Call, ...]
    breaches: tuple[str, ...]
    first_content: float | None
    dropped: int = 0

    @property
    def when(self) -> datetime:
        """The end of the reply."""
        return datetime.fromisoformat(self.at)


def redacted(taken: Taken, own: Iterable[Any] = ()) -> Record:
    """What may be kept of it; `own` are the operator's RE2 patterns. Raises TooManySecrets."""
    redactor = Redactor(own)
    request: dict[str, Any] = {"messages": [redactor.message(m) for m in taken.body["messages"]]}
    for name in _SHAPES:
        if taken.body.get(name) is not None:
            shaped = redactor.schema({name: taken.body[name]})
            request |= shaped
    calls = tuple(Call(redactor.text(name), redactor.arguments(text)) for name, text in taken.calls)
    return Record(
        id=taken.id,
        at=taken.at.isoformat(timespec="milliseconds"),
        model=taken.model,
        engine=taken.engine,
        thinking=taken.thinking,
        request=request,
        calls=calls,
        breaches=tuple(sorted(taken.breaches)),
        first_content=None if taken.wait is None else round(taken.wait, 3),
        dropped=redactor.dropped,
    )


def render(record: Record) -> bytes:
    """One line, with its line break."""
    text = json.dumps({"schema": SCHEMA, **asdict(record)}, separators=(",", ":"), ensure_ascii=False)
    return text.encode("utf-8", "replace") + b"\n"


def parse(line: bytes) -> Record | None:
    """The record on a line; None of one that is torn, or of another schema."""
    try:
        fields = json.loads(line)
        if fields.pop("schema") != SCHEMA:
            return None
        calls = tuple(Call(**call) for call in fields.pop("calls"))
        record = Record(**{**fields, "calls": calls, "breaches": tuple(fields["breaches"])})
        return record if record.when.tzinfo is not None and record.request["messages"] else None
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None
