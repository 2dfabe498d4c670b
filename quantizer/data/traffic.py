"""Turns recorded chats into a training file with a manifest, and drops rows that are unfit for training.

A row is dropped by the code of the finding: `thought`; `placeholder` (the assistant uses one that does not occur before: it would
learn the placeholder); `part` (the beginning of a longer conversation that is kept); others as in `quantizer.data.validate`.
"""

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, Final, Protocol

from gates.contracts.case import Suite
from quantizer.core.errors import DataError, ExportError
from quantizer.data import conversation as rows
from quantizer.data.conversation import Conversation
from quantizer.data.generate import MANIFEST, ROWS, SCHEMA, write_file, write_rows
from quantizer.data.validate import DataReport, RowValidator

PLACEHOLDER: Final = re.compile(r"\b(?:DATA|URL|KEY|ID|EMAIL|IP|NUMBER|REDACTED|TEXT)_[A-Z]{1,7}\b")
PRIVATE: Final = 0o600

Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Traffic:
    """Rows that may be used, oldest first. consent: the callers' consent, as the operator stated it. records: the number
    of all records. dropped: the number of those that may not be used, by reason. facts: for the manifest."""

    rows: Sequence[Row]
    consent: str
    records: int
    dropped: Mapping[str, int] = field(default_factory=dict)
    facts: Mapping[str, Any] = field(default_factory=dict)


class ReadTraffic(Protocol):
    """Reads a gateway's records. Raises RecipeError without consent, DataError for a missing configuration."""

    def __call__(self, config: Path | None, model: str | None, days: int | None) -> Traffic: ...


def make_training_file(
    traffic: Traffic, suites: Sequence[Suite], out: Path, *, max_seconds: float, now: datetime
) -> dict[str, Any]:
    """Write the fit rows into a folder that only its owner can read; the manifest. Raises DataError, ExportError."""
    kept, unfit = select(traffic.rows, suites, max_seconds)
    dropped = Counter(traffic.dropped) + unfit
    told = dict(dropped.most_common())
    if not kept:
        why = ", ".join(f"{number} {reason}" for reason, number in told.items()) or "nothing was recorded"
        raise DataError(f"none of {traffic.records} records can be trained on: {why}")
    try:
        out.mkdir(mode=0o700, parents=True, exist_ok=True)
        (out / MANIFEST).unlink(missing_ok=True)
    except OSError as error:
        raise ExportError(f"{out}: cannot be made ({error.strerror})") from None
    manifest = {
        "schema": SCHEMA,
        "created": now.isoformat(timespec="seconds"),
        "source": "shadow",
        "consent": traffic.consent,
        **traffic.facts,
        "records": traffic.records,
        "file": write_rows(out / ROWS, kept, PRIVATE),
        "conversations": len(kept),
        "with_calls": sum(any("tool_calls" in message for message in row["messages"]) for row in kept),
        "dropped": told,
        "clear_of": {suite.name: suite.digest for suite in suites},
    }
    write_file(out / MANIFEST, json.dumps(manifest, indent=2, ensure_ascii=False) + "\n", PRIVATE)
    return manifest


def select(
    traffic: Iterable[Row], suites: Sequence[Suite], max_seconds: float
) -> tuple[list[Row], Counter[str]]:
    """The fit rows in their order, and the number of the others by reason."""
    numbered = list(enumerate(traffic))
    checks = RowValidator(DataReport("", ""), suites, None, max_seconds)
    beginnings: set[str] = set()
    dropped: Counter[str] = Counter()
    kept: list[tuple[int, Row]] = []
    # The longest first: of a conversation that was recorded turn by turn, the whole is kept.
    for place, row in sorted(numbered, key=lambda pair: -len(pair[1]["messages"])):
        if reason := _unfit(place, row, checks, beginnings):
            dropped[reason] += 1
        else:
            beginnings.update(_beginnings(row["messages"]))
            kept.append((place, row))
    return [row for _, row in sorted(kept, key=lambda pair: pair[0])], dropped


def _unfit(place: int, row: Row, checks: RowValidator, beginnings: set[str]) -> str:
    try:
        made = rows.from_row(row)
    except DataError:
        return "row"
    if made.thinks:
        return "thought"
    if _invents_a_placeholder(made):
        return "placeholder"
    if _key(row["messages"]) in beginnings:
        return "part"
    found = checks.faults(place, row, made) or checks.likenesses(place, made)
    return found[0].code if found else ""


def _invents_a_placeholder(made: Conversation) -> bool:
    """Whether the assistant writes a placeholder that does not occur before."""
    known: set[str] = set()
    for message in made.messages:
        said = f"{message['content']} {json.dumps(message.get('tool_calls', ''), ensure_ascii=False)}"
        found = set(PLACEHOLDER.findall(said))
        if message["role"] == "assistant" and not found <= known:
            return True
        known |= found
    return False


def _beginnings(messages: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """The keys of all shorter conversations that end with an assistant's message, and of this one."""
    for end, message in enumerate(messages, start=1):
        if message["role"] == "assistant":
            yield _key(messages[:end])


def _key(messages: Sequence[Mapping[str, Any]]) -> str:
    """The texts and calls, without the ids of calls."""
    said = [
        (
            message["role"],
            str(message.get("content") or "").strip(),
            [
                (call["function"]["name"], _value(call["function"].get("arguments")))
                for call in message.get("tool_calls") or ()
            ],
        )
        for message in messages
    ]
    return json.dumps(said, sort_keys=True, ensure_ascii=False)


def _value(arguments: Any) -> Any:
    try:
        return json.loads(arguments) if isinstance(arguments, str) else arguments
    except ValueError:
        return arguments
