"""One record: what a caller asked and what became of it, redacted, as one line of JSON. Pure."""

import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any, Final

from app.shadow.redact import Redactor

SCHEMA: Final = "manners/shadow/v1"

SAMPLING: Final = (
    "temperature", "top_p", "top_k", "min_p", "presence_penalty", "frequency_penalty",
    "repetition_penalty", "max_tokens", "max_completion_tokens", "stop",
)  # fmt: skip
_SHAPES: Final = ("tools", "tool_choice", "parallel_tool_calls", "response_format", *SAMPLING)

_LETTERS: Final = str.maketrans("0123456789abcdef", "abcdefghijklmnop")


@dataclass(frozen=True, slots=True)
class Taken:
    """A finished chat as the gateway holds it, not redacted: it lives in memory only.

    `calls` are names and arguments as they went out. `wait` is seconds to the first content, None
    where a reply was not streamed.
    """

    request_id: str
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
    """As it is kept. `id` is made of the request's, and does not tell it; `at` is UTC, RFC 3339."""

    id: str
    at: str
    model: str
    engine: str
    thinking: bool
    request: Mapping[str, Any]
    calls: tuple[Call, ...]
    breaches: tuple[str, ...]
    first_content: float | None

    @property
    def when(self) -> datetime:
        """The end of the reply."""
        return datetime.fromisoformat(self.at)


def is_chosen(request_id: str, share: float) -> bool:
    """Whether a request belongs to the share: the same id always does, or never."""
    head = hashlib.sha256(request_id.encode()).digest()[:8]
    return int.from_bytes(head, "big") < share * 2**64


def redacted(taken: Taken, own: Iterable[re.Pattern[str]] = ()) -> Record:
    """What may be kept of it."""
    redactor = Redactor(own)
    request: dict[str, Any] = {"messages": [redactor.message(m) for m in taken.body["messages"]]}
    for name in _SHAPES:
        if taken.body.get(name) is not None:
            shaped = redactor.schema({name: taken.body[name]})
            request |= shaped
    at = taken.at.isoformat(timespec="milliseconds")
    digest = hashlib.sha256(f"{taken.request_id} {at}".encode()).hexdigest()[:16]
    return Record(
        id=digest.translate(_LETTERS),  # letters only: nothing in a record looks like a number
        at=at,
        model=taken.model,
        engine=taken.engine,
        thinking=taken.thinking,
        request=request,
        calls=tuple(Call(redactor.text(name), redactor.arguments(text)) for name, text in taken.calls),
        breaches=tuple(sorted(taken.breaches)),
        first_content=None if taken.wait is None else round(taken.wait, 3),
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
