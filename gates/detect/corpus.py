"""The labelled corpora on which the detectors are measured: `gates/corpus/DETECTOR.jsonl` and `DETECTOR-SOURCE.jsonl`, and
`real.jsonl.gz`, on which all detectors of plain text are (`load_real`).

A line has "label" (hit or clean), "why", and the detector's keywords; "group" groups lines in the table.
"""

import gzip
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final, Literal

from gates.contracts.errors import SuiteError
from gates.decode.jsonl import read_objects
from gates.detect.catalogue import DETECTORS
from gates.reply.calls import ReplyCall

FOLDER: Final = Path(__file__).parent.parent / "corpus"
REAL: Final = FOLDER / "real.jsonl.gz"
OF_PLAIN_TEXT: Final = ("leak", "raw_call", "template", "empty", "loop", "refusal")
"""The detectors that need no more than a reply and the names of the tools."""

_LABEL_KEYS: Final = ("label", "why", "group")


@dataclass(frozen=True, slots=True)
class LabelledCase:
    """One labelled case of one detector; `where` names its file and line."""

    corpus: str  # the file's name without its ending
    where: str
    label: Literal["hit", "clean"]
    why: str
    group: str
    fields: Mapping[str, Any]

    @property
    def detector(self) -> str:
        return self.corpus.partition("-")[0]

    def caught(self) -> bool:
        """Whether the detector has a detection. Raises SuiteError if the line's fields do not fit the detector."""
        try:
            return bool(DETECTORS[self.detector](**_arguments(self.fields)))
        except (KeyError, TypeError, ValueError) as error:
            raise SuiteError(f"{self.where}: {self.detector} cannot read this line ({error})") from None


def _arguments(fields: Mapping[str, Any]) -> dict[str, Any]:
    """The detector's keywords; lines about tool calls have calls as objects, and tools by their names."""
    if not isinstance(calls := fields.get("calls"), list):
        return dict(fields)
    made = [ReplyCall(i, call.get("id"), call["name"], call["arguments"]) for i, call in enumerate(calls)]
    sent = [tools()[name] for name in fields["tools"]]
    return {"finish_reason": "tool_calls" if calls else "stop", **fields, "calls": made, "tools": sent}


def _parse(table: Mapping[str, Any], corpus: str, where: str) -> LabelledCase:
    label, why = table.get("label"), table.get("why")
    if label not in ("hit", "clean") or not why:
        raise SuiteError(f"{where}: label must be hit or clean, and why must say something")
    fields = {key: value for key, value in table.items() if key not in _LABEL_KEYS}
    return LabelledCase(corpus, where, label, why, table.get("group", ""), fields)


def load(path: Path) -> list[LabelledCase]:
    """Every line of a file. Raises SuiteError for a damaged file, or one that is not named after a detector."""
    corpus = path.name.removesuffix(".jsonl")
    if corpus.partition("-")[0] not in DETECTORS:
        raise SuiteError(f"{path}: is named after no detector ({', '.join(sorted(DETECTORS))})")
    return [_parse(table, corpus, where) for where, table in read_objects(path)]


def load_all(folder: Path = FOLDER) -> list[LabelledCase]:
    return [line for path in sorted(folder.glob("*.jsonl")) for line in load(path)]


def load_real(detector: str) -> Iterator[LabelledCase]:
    """Every text of `real.jsonl.gz` as a case of this detector. A line has "part" (the model or package that wrote it), "text", "names" (the
    tools that were sent), and "has" (the detectors for which it is a hit).
    """
    for number, row in enumerate(_real(), start=1):
        fields = {"text": row["text"]} | ({"names": row.get("names", ())} if detector == "raw_call" else {})
        label: Literal["hit", "clean"] = "hit" if detector in row.get("has", ()) else "clean"
        part = row["part"].partition(":")[0]
        yield LabelledCase(f"{detector}-real", f"{REAL.name}:{number}", label, row["part"], part, fields)


@cache
def _real() -> tuple[Mapping[str, Any], ...]:
    with gzip.open(REAL, "rt", encoding="utf-8", newline="\n") as file:
        return tuple(json.loads(line) for line in file)


@cache
def tools() -> Mapping[str, Mapping[str, Any]]:
    """The tools used by the tool-call cases, by name."""
    document = json.loads((FOLDER / "tools.json").read_text(encoding="utf-8"))
    return {tool["function"]["name"]: tool for tool in document}
