"""The labelled corpora of `gates/corpus`, and the detectors' recall and false positives over them, with exact intervals.

`DETECTOR.jsonl` and `DETECTOR-SOURCE.jsonl` are one detector's, `real.jsonl.gz` that of all detectors of plain text. A line has
"label" (hit or clean), "why", and the detector's keywords; "group" groups lines in the table.
"""

import gzip
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final, NamedTuple

from gates.contracts.strict_json import read_objects
from gates.detect.catalogue import DETECTORS
from gates.reply.reply import ReplyCall
from gates.stats.binomial import clopper_pearson_lower, clopper_pearson_upper

FOLDER: Final = Path(__file__).parents[3] / "gates" / "corpus"
OF_PLAIN_TEXT: Final = ("leak", "raw_call", "template", "empty", "loop", "refusal")
"""The detectors that need no more than a reply and the names of the tools."""
CONFIDENCE: Final = 0.95  # of the intervals and bounds


@dataclass(frozen=True, slots=True)
class LabelledCase:
    """One labelled case of one detector; `where` names its file and line, `corpus` is the file's name without its ending."""

    corpus: str
    where: str
    is_hit: bool
    why: str
    group: str
    fields: Mapping[str, Any]

    @property
    def detector(self) -> str:
        return self.corpus.partition("-")[0]

    @property
    def is_wrong(self) -> bool:
        """Whether the detector sees it otherwise."""
        return bool(DETECTORS[self.detector](**_arguments(self.fields))) != self.is_hit

    def __str__(self) -> str:
        text = self.fields.get("text", self.fields.get("calls", ""))
        return f"{self.where}: {text!r:.100} ({self.why})"


def _arguments(fields: Mapping[str, Any]) -> dict[str, Any]:
    """The detector's keywords; lines about tool calls have calls as objects, and tools by their names."""
    if not isinstance(calls := fields.get("calls"), list):
        return dict(fields)
    tools = {
        tool["function"]["name"]: tool for tool in json.loads((FOLDER / "tools.json").read_text("utf-8"))
    }
    made = [ReplyCall(i, call.get("id"), call["name"], call["arguments"]) for i, call in enumerate(calls)]
    sent = [tools[name] for name in fields["tools"]]
    return {"finish_reason": "tool_calls" if calls else "stop", **fields, "calls": made, "tools": sent}


@cache
def load_all() -> tuple[LabelledCase, ...]:
    """Every line of every corpus but the real texts."""
    found = []
    for path in sorted(FOLDER.glob("*.jsonl")):
        for where, line in read_objects(path):
            fields = {key: value for key, value in line.items() if key not in ("label", "why", "group")}
            is_hit = {"hit": True, "clean": False}[line["label"]]
            found.append(LabelledCase(path.stem, where, is_hit, line["why"], line.get("group", ""), fields))
    return tuple(found)


def load_real(detector: str) -> Iterator[LabelledCase]:
    """Every real text as a case of this detector. A line has "part" (the model or package that wrote it), "text", "names" (the tools that
    were sent), and "has" (the detectors for which it is a hit).
    """
    for number, row in enumerate(_real(), start=1):
        fields = {"text": row["text"]} | ({"names": row.get("names", ())} if detector == "raw_call" else {})
        is_hit, part = detector in row.get("has", ()), row["part"].partition(":")[0]
        yield LabelledCase(f"{detector}-real", f"real.jsonl.gz:{number}", is_hit, row["part"], part, fields)


@cache
def _real() -> tuple[Mapping[str, Any], ...]:
    with gzip.open(FOLDER / "real.jsonl.gz", "rt", encoding="utf-8", newline="\n") as file:
        return tuple(json.loads(line) for line in file)


class Rate(NamedTuple):
    """So many of so many."""

    found: int
    of: int

    @property
    def bound(self) -> float:
        """Clopper-Pearson's one-sided upper bound."""
        return clopper_pearson_upper(self.found, self.of, CONFIDENCE)

    def __str__(self) -> str:
        """With Clopper-Pearson's two-sided interval in percent; "" of none."""
        if not self.of:
            return ""
        low, high = (
            end(self.found, self.of, (1.0 + CONFIDENCE) / 2.0)
            for end in (clopper_pearson_lower, clopper_pearson_upper)
        )
        return f"{self.found} of {self.of} ({100 * low:.1f}–{100 * high:.1f} %)"


@dataclass(frozen=True, slots=True)
class CorpusScore:
    """The result of one group of a corpus; the group "" is the whole corpus. `wrong`: hits that were missed, clean cases that were not."""

    corpus: str
    group: str
    recall: Rate
    false_positives: Rate
    wrong: tuple[LabelledCase, ...]

    @property
    def reaches(self) -> bool:
        """Whether the corpus reaches its bar: a recall, and a rate of false positives, or the rate's upper bound."""
        recall, wrong = (rate.found / rate.of for rate in (self.recall, self.false_positives))
        match self.corpus:
            case "leak-real" | "raw_call-real" | "template-real" | "empty-real":
                return recall >= 0.85 and self.false_positives.bound <= 0.005
            case "leak":  # a thought of one sentence may show one sign only
                return recall >= 0.85 and wrong <= 0.03
            case "leak-nano":
                return recall >= 0.99 and wrong <= 0.005
        return recall >= 0.97 and wrong <= 0.03


def _score(corpus: str, group: str, lines: Sequence[LabelledCase]) -> CorpusScore:
    wrong, hits = tuple(line for line in lines if line.is_wrong), sum(line.is_hit for line in lines)
    missed = sum(line.is_hit for line in wrong)
    rates = Rate(hits - missed, hits), Rate(len(wrong) - missed, len(lines) - hits)
    return CorpusScore(corpus, group, *rates, wrong)


@cache
def scores(real: str = "") -> list[CorpusScore]:
    """One score per corpus, and one for each of its groups; of a detector on the real texts, if it is named."""
    lines = load_real(real) if real else load_all()
    by_corpus: dict[str, list[LabelledCase]] = {}
    for line in lines:
        by_corpus.setdefault(line.corpus, []).append(line)
    out = []
    for corpus, all_ in by_corpus.items():
        out.append(_score(corpus, "", all_))
        groups = dict.fromkeys(line.group for line in all_ if line.group)
        out += [_score(corpus, name, [line for line in all_ if line.group == name]) for name in groups]
    return out
