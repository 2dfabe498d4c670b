"""The labelled corpora that the detectors are measured on: lines, and how a detector reads one.

`gates/corpus/DETECTOR.jsonl` and `gates/corpus/DETECTOR-SOURCE.jsonl`: one JSON object a line, with
"label" ("hit" or "clean"), "why" (for a person), and the fields that its detector takes, mostly
"text". "group" sorts lines for the table. A line with "counts": false is measured and shown, and no
bar is held against it: a label that is true and that nobody could read off the text.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final, Literal

from gates.contracts.errors import SuiteError
from gates.detect.answers import find_wrong_answer
from gates.detect.empty import find_empty
from gates.detect.finding import Finding, decide
from gates.detect.leak import find_leaks
from gates.detect.loop import find_loops
from gates.detect.markdown import find_markdown
from gates.detect.rawcall import find_raw_calls
from gates.detect.refusal import find_refusal
from gates.detect.script import find_wrong_script
from gates.detect.speakable import find_unspeakable
from gates.detect.spoken import find_too_long
from gates.detect.toolcall import find_call_faults, find_mismatch

FOLDER: Final = Path(__file__).parent.parent / "corpus"

_OWN: Final = ("label", "why", "group", "counts")


@dataclass(frozen=True, slots=True)
class Line:
    """One labelled case of one detector; `where` names its file and line."""

    corpus: str  # the file's name without its ending
    where: str
    label: Literal["hit", "clean"]
    why: str
    group: str
    counts: bool
    fields: Mapping[str, Any]

    @property
    def detector(self) -> str:
        """Whose case it is."""
        return self.corpus.partition("-")[0]

    def caught(self) -> bool:
        """Whether the detector finds something that decides."""
        return decide(self.findings())

    def findings(self) -> list[Finding]:
        """What the detector says. Raises SuiteError where the fields are not its own."""
        try:
            return RUN[self.detector](dict(self.fields))
        except (KeyError, TypeError, ValueError) as error:
            raise SuiteError(f"{self.where}: {self.detector} cannot read this line ({error})") from None


@dataclass(frozen=True, slots=True)
class _Call:
    id: str | None
    name: str
    arguments: str


def _toolcall(fields: dict[str, Any]) -> list[Finding]:
    calls = [_Call(call.get("id"), call["name"], call["arguments"]) for call in fields["calls"]]
    sent = [tools()[name] for name in fields["tools"]]
    findings = find_call_faults(calls, sent, fields.get("finish_reason", "tool_calls" if calls else "stop"))
    return findings + (find_mismatch(calls, fields["expected"]) if "expected" in fields else [])


RUN: Final[Mapping[str, Callable[[dict[str, Any]], list[Finding]]]] = {
    "leak": lambda fields: find_leaks(fields.pop("text"), **fields),
    "raw_call": lambda fields: find_raw_calls(**fields),
    "empty": lambda fields: find_empty(**fields),
    "toolcall": _toolcall,
    "markdown": lambda fields: find_markdown(**fields),
    "loop": lambda fields: find_loops(**fields),
    "verbosity": lambda fields: find_too_long(**fields),
    "speakable": lambda fields: find_unspeakable(**fields),
    "script": lambda fields: find_wrong_script(**fields),
    "answer": lambda fields: find_wrong_answer(**fields),
    "refusal": lambda fields: find_refusal(**fields),
}
"""Each detector on the fields of a line."""


def parse(text: str, corpus: str, number: int) -> Line:
    """One line of a corpus. Raises SuiteError that names its place."""
    where = f"{corpus}.jsonl:{number}"
    try:
        table = json.loads(text)
        label, why = table["label"], table["why"]
        if label not in ("hit", "clean") or not why:
            raise SuiteError(f"{where}: label must be hit or clean, and why must say something")
    except (ValueError, KeyError, TypeError) as error:
        raise (
            error if isinstance(error, SuiteError) else SuiteError(f"{where}: no labelled case ({error})")
        ) from None
    fields = {key: value for key, value in table.items() if key not in _OWN}
    return Line(corpus, where, label, why, table.get("group", ""), table.get("counts", True), fields)


def load(path: Path) -> list[Line]:
    """Every line of one file. Raises SuiteError for a damaged one, or a file of no detector."""
    corpus = path.name.removesuffix(".jsonl")
    if corpus.partition("-")[0] not in RUN:
        raise SuiteError(f"{path}: is named after no detector ({', '.join(sorted(RUN))})")
    lines = path.read_text(encoding="utf-8").splitlines()
    return [parse(line, corpus, i) for i, line in enumerate(lines, 1) if line.strip()]


def load_all(folder: Path = FOLDER) -> list[Line]:
    """Every corpus of a folder, by name."""
    return [line for path in sorted(folder.glob("*.jsonl")) for line in load(path)]


@cache
def tools() -> Mapping[str, Mapping[str, Any]]:
    """The tools that the cases of toolcall are made with, by name."""
    document = json.loads((FOLDER / "tools.json").read_text(encoding="utf-8"))
    return {tool["function"]["name"]: tool for tool in document}
