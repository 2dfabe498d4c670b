"""The labelled corpora on which the detectors are measured.

`gates/corpus/DETECTOR.jsonl` and `gates/corpus/DETECTOR-SOURCE.jsonl` hold one JSON object per line:
"label" ("hit" or "clean"), "why" (for display), and the arguments of the detector, mostly "text".
"group" groups lines in the table. A line with "counts": false is measured and shown but does not count
towards the threshold: its label is true, but cannot be derived from the text.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final, Literal

from gates.contracts.errors import SuiteError
from gates.decode.jsonl import read_objects
from gates.detect.answers import find_wrong_answer
from gates.detect.detection import Detection, decide
from gates.detect.duration import find_too_long
from gates.detect.empty import find_empty
from gates.detect.everyday import find_everyday_fault
from gates.detect.leak import find_leaks
from gates.detect.loop import find_loops
from gates.detect.markdown import find_markdown
from gates.detect.rawcall import find_raw_calls
from gates.detect.refusal import find_refusal
from gates.detect.script import find_wrong_script
from gates.detect.speakable import find_unspeakable
from gates.detect.toolcall import find_call_faults, find_mismatch

FOLDER: Final = Path(__file__).parent.parent / "corpus"

_LABEL_KEYS: Final = ("label", "why", "group", "counts")


@dataclass(frozen=True, slots=True)
class LabelledCase:
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
        return self.corpus.partition("-")[0]

    def caught(self) -> bool:
        """Whether the detector has a detection that decides."""
        return decide(self.findings())

    def findings(self) -> list[Detection]:
        """The detector's detections. Raises SuiteError if the line's fields do not fit the detector."""
        try:
            return DETECTORS[self.detector](dict(self.fields))
        except (KeyError, TypeError, ValueError) as error:
            raise SuiteError(f"{self.where}: {self.detector} cannot read this line ({error})") from None


@dataclass(frozen=True, slots=True)
class _Call:
    id: str | None
    name: str
    arguments: str


def _toolcall(fields: dict[str, Any]) -> list[Detection]:
    calls = [_Call(call.get("id"), call["name"], call["arguments"]) for call in fields["calls"]]
    sent = [tools()[name] for name in fields["tools"]]
    findings = find_call_faults(calls, sent, fields.get("finish_reason", "tool_calls" if calls else "stop"))
    return findings + (find_mismatch(calls, fields["expected"]) if "expected" in fields else [])


DETECTORS: Final[Mapping[str, Callable[[dict[str, Any]], list[Detection]]]] = {
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
    "everyday": lambda fields: find_everyday_fault(**fields),
}
"""Each detector, called with the fields of a line."""


def parse(table: Mapping[str, Any], corpus: str, where: str) -> LabelledCase:
    """One line of a corpus. Raises SuiteError that names the line."""
    label, why = table.get("label"), table.get("why")
    if label not in ("hit", "clean") or not why:
        raise SuiteError(f"{where}: label must be hit or clean, and why must say something")
    fields = {key: value for key, value in table.items() if key not in _LABEL_KEYS}
    return LabelledCase(corpus, where, label, why, table.get("group", ""), table.get("counts", True), fields)


def load(path: Path) -> list[LabelledCase]:
    """Every line of a file. Raises SuiteError for a damaged file, or one that is not named after a detector."""
    corpus = path.name.removesuffix(".jsonl")
    if corpus.partition("-")[0] not in DETECTORS:
        raise SuiteError(f"{path}: is named after no detector ({', '.join(sorted(DETECTORS))})")
    return [parse(table, corpus, where) for where, table in read_objects(path)]


def load_all(folder: Path = FOLDER) -> list[LabelledCase]:
    return [line for path in sorted(folder.glob("*.jsonl")) for line in load(path)]


@cache
def tools() -> Mapping[str, Mapping[str, Any]]:
    """The tools used by the tool-call cases, by name."""
    document = json.loads((FOLDER / "tools.json").read_text(encoding="utf-8"))
    return {tool["function"]["name"]: tool for tool in document}
