"""The corpora by which a reply parser is judged, and their scorer: `tests/data/replies/README.md` says what a row means."""

import json
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent / "data" / "replies"

PROPERTIES: dict[str, dict[str, Any]] = {
    "now": {},
    "web_search": {"query": {"type": "string"}},
    "set_light": {"on": {"type": "boolean"}, "room": {"type": "string"}},
    "get_weather": {"city": {"type": "string"}},
}
DECLARATIONS: dict[str, dict[str, Any]] = {
    name: {
        "type": "function",
        "function": {"name": name, "parameters": {"type": "object", "properties": properties}},
    }
    for name, properties in PROPERTIES.items()
}

Call = tuple[str, dict[str, Any]]
Parse = Callable[[str, list[str], bool, str, str, int | None], tuple[str, list[Call]]]
"""(format, names of declared tools, json_mode, reasoning, content, characters in a piece) -> speech, calls.
None as the last one: a reply that is not streamed."""


@dataclass(frozen=True)
class Wrong:
    """One row that came out wrong, in pieces of `size` characters."""

    row: dict[str, Any]
    size: int | None
    why: str


def rows(name: str) -> list[dict[str, Any]]:
    """The rows of `name`.jsonl, with their long texts written out."""
    lines = (FOLDER / f"{name}.jsonl").read_text(encoding="utf-8").splitlines()
    return [json.loads(line, object_hook=_written_out) for line in lines]


def _written_out(value: dict[str, Any]) -> Any:
    return "".join(text * times for text, times in value["repeat"]) if set(value) == {"repeat"} else value


def score(
    parse: Parse, bank: Iterable[dict[str, Any]], sizes: Iterable[int | None] = (None, 1, 3, 20)
) -> dict[str, list[Wrong]]:
    """The wrong rows by class, each with the first size that shows it."""
    wrong: dict[str, list[Wrong]] = {}
    for row in bank:
        for size in (None,) if row.get("held") else sizes:
            args = row["format"], row["tools"], row["json_mode"], row["reasoning"], row["content"], size
            if why := fault(row, *parse(*args)):
                wrong.setdefault(row["class"], []).append(Wrong(row, size, why))
                break
    return wrong


def fault(row: dict[str, Any], speech: str, calls: list[Call]) -> str:
    """What is wrong with `speech` and `calls` for this row; empty: nothing."""
    expect = row["expect"]
    if heard := [text for text in expect["absent"] if text in speech]:
        return f"heard: {heard}"
    if missing := [text for text in expect["present"] if text not in speech]:
        return f"not heard: {missing}"
    if expect["speech"] is not None and _normal(speech, row) != _normal(expect["speech"], row):
        return f"speech: {speech[:200]!r}"
    if expect["calls"] is not None and [list(call) for call in calls] != expect["calls"]:
        return f"calls: {calls}"
    return ""


def _normal(text: str, row: dict[str, Any]) -> str:
    text = text.strip()
    if row["json_mode"]:
        return text
    blanks, one = (r"\n\s*\n", "\n\n") if row["class"] == "quality" else (r"\s+", " ")
    parts = re.split(r"(```.*?(?:```|\Z))", text, flags=re.DOTALL)
    return "".join(part if n % 2 else re.sub(blanks, one, part) for n, part in enumerate(parts))
