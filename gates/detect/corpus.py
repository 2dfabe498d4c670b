"""The labelled corpora, and the detectors' recall and false positives over them, with exact intervals.

`gates/corpus/DETECTOR.jsonl` and `DETECTOR-SOURCE.jsonl` are one detector's, `real.jsonl.gz` that of all detectors of plain text.
A line has "label" (hit or clean), "why", and the detector's keywords; "group" groups lines in the table.
"""

import gzip
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple

from gates.contracts.errors import SuiteError
from gates.decode.jsonl import read_objects
from gates.detect.catalogue import DETECTORS
from gates.reply.reply import ReplyCall
from gates.stats.binomial import clopper_pearson, clopper_pearson_upper

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


CONFIDENCE: Final = 0.95  # of the intervals and bounds


@dataclass(frozen=True, slots=True)
class Threshold:
    """What a corpus must reach: a minimum recall and a maximum rate of false positives, which `bound` asks of the rate's upper bound."""

    recall: float
    false_positives: float
    bound: bool = False


_CRITICAL: Final = Threshold(0.85, 0.005, bound=True)
THRESHOLDS: Final[Mapping[str, Threshold]] = {
    "leak": Threshold(0.85, 0.03),  # a thought of one sentence may show one sign only
    "leak-nano": Threshold(0.99, 0.005),
    "leak-real": _CRITICAL, "raw_call-real": _CRITICAL, "template-real": _CRITICAL, "empty-real": _CRITICAL,
}  # fmt: skip
DEFAULT_THRESHOLD: Final = Threshold(0.97, 0.03)


class Rate(NamedTuple):
    """So many of so many."""

    found: int
    of: int

    @property
    def share(self) -> float:
        return self.found / self.of

    @property
    def bound(self) -> float:
        """Clopper-Pearson's one-sided upper bound."""
        return clopper_pearson_upper(self.found, self.of, CONFIDENCE)

    def __str__(self) -> str:
        """With Clopper-Pearson's two-sided interval in percent; "" of none."""
        if not self.of:
            return ""
        low, high = clopper_pearson(self.found, self.of, CONFIDENCE)
        return f"{self.found} of {self.of} ({100 * low:.1f}–{100 * high:.1f} %)"


@dataclass(frozen=True, slots=True)
class CorpusScore:
    """The result of one group of a corpus; the group "" is the whole corpus."""

    corpus: str
    group: str
    recall: Rate
    false_positives: Rate
    missed: tuple[str, ...]  # where, and what it was
    mistaken: tuple[str, ...]

    @property
    def bar(self) -> Threshold:
        return THRESHOLDS.get(self.corpus, DEFAULT_THRESHOLD)

    @property
    def reaches(self) -> bool:
        """Whether the threshold is reached; never for a corpus without hits or without clean cases."""
        if not (self.recall.of and self.false_positives.of):
            return False
        rate = self.false_positives.bound if self.bar.bound else self.false_positives.share
        return self.recall.share >= self.bar.recall and rate <= self.bar.false_positives


def score(corpus: str, group: str, lines: Sequence[LabelledCase]) -> CorpusScore:
    """Run the detector over these lines and count."""
    wrong = [line for line in lines if line.caught() != (line.label == "hit")]
    hits = sum(line.label == "hit" for line in lines)
    missed = tuple(_described(line) for line in wrong if line.label == "hit")
    mistaken = tuple(_described(line) for line in wrong if line.label == "clean")
    rates = Rate(hits - len(missed), hits), Rate(len(mistaken), len(lines) - hits)
    return CorpusScore(corpus, group, *rates, missed, mistaken)


def scores(lines: Iterable[LabelledCase]) -> list[CorpusScore]:
    """One score per corpus, and one for each of its groups."""
    by_corpus: dict[str, list[LabelledCase]] = {}
    for line in lines:
        by_corpus.setdefault(line.corpus, []).append(line)
    out = []
    for corpus, all_ in by_corpus.items():
        out.append(score(corpus, "", all_))
        groups = dict.fromkeys(line.group for line in all_ if line.group)
        out += [score(corpus, name, [line for line in all_ if line.group == name]) for name in groups]
    return out


def _described(line: LabelledCase) -> str:
    text = line.fields.get("text", line.fields.get("calls", ""))
    return f"{line.where}: {text!r:.100} ({line.why})"
