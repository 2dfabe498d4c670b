"""Recall and false-positive rates of the detectors over their corpora, with exact intervals."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from gates.detect.corpus import LabelledCase
from gates.stats.binomial import clopper_pearson, clopper_pearson_upper

CONFIDENCE: Final = 0.95  # of the intervals and bounds


@dataclass(frozen=True, slots=True)
class Threshold:
    """What a corpus must reach: a minimum recall and a maximum rate of false positives, which `bound` asks of the rate's upper bound."""

    recall: float
    false_positives: float
    bound: bool = False


_CRITICAL: Final = Threshold(0.9, 0.005, bound=True)
THRESHOLDS: Final[Mapping[str, Threshold]] = {
    "leak": Threshold(0.85, 0.03),  # a thought of one sentence may show one sign only
    "leak-nano": Threshold(0.99, 0.005),
    "leak-real": _CRITICAL, "raw_call-real": _CRITICAL, "template-real": _CRITICAL, "empty-real": _CRITICAL,
}  # fmt: skip
DEFAULT_THRESHOLD: Final = Threshold(0.97, 0.03)


@dataclass(frozen=True, slots=True)
class CorpusScore:
    """The result of one group of a corpus; the group "" is the whole corpus."""

    corpus: str
    group: str
    hits: int
    found: int
    clean: int
    wrong: int
    missed: tuple[str, ...]  # where, and what it was
    mistaken: tuple[str, ...]

    @property
    def recall(self) -> float | None:
        """The share of hits that were found, or None without hits."""
        return self.found / self.hits if self.hits else None

    @property
    def false_positives(self) -> float | None:
        """The share of clean cases that were taken for hits, or None without clean cases."""
        return self.wrong / self.clean if self.clean else None

    @property
    def recall_interval(self) -> tuple[float, float] | None:
        """Clopper-Pearson, two-sided."""
        return clopper_pearson(self.found, self.hits, CONFIDENCE) if self.hits else None

    @property
    def false_positive_interval(self) -> tuple[float, float] | None:
        """Clopper-Pearson, two-sided."""
        return clopper_pearson(self.wrong, self.clean, CONFIDENCE) if self.clean else None

    @property
    def false_positive_bound(self) -> float | None:
        """Clopper-Pearson's one-sided upper bound."""
        return clopper_pearson_upper(self.wrong, self.clean, CONFIDENCE) if self.clean else None

    @property
    def bar(self) -> Threshold:
        return THRESHOLDS.get(self.corpus, DEFAULT_THRESHOLD)

    @property
    def reaches(self) -> bool:
        """Whether the threshold is reached; never for a corpus without hits or without clean cases."""
        rate = self.false_positive_bound if self.bar.bound else self.false_positives
        if self.recall is None or rate is None:
            return False
        return self.recall >= self.bar.recall and rate <= self.bar.false_positives


def score(corpus: str, group: str, lines: Sequence[LabelledCase]) -> CorpusScore:
    """Run the detector over these lines and count."""
    caught = {line.where: line.caught() for line in lines}
    hits = [line for line in lines if line.label == "hit"]
    clean = [line for line in lines if line.label == "clean"]
    missed = tuple(_described(line) for line in hits if not caught[line.where])
    mistaken = tuple(_described(line) for line in clean if caught[line.where])
    return CorpusScore(
        corpus, group, len(hits), len(hits) - len(missed), len(clean), len(mistaken), missed, mistaken
    )


def scores(lines: Iterable[LabelledCase]) -> list[CorpusScore]:
    """One score per corpus over the lines that count, and one for each of its groups."""
    by_corpus: dict[str, list[LabelledCase]] = {}
    for line in lines:
        by_corpus.setdefault(line.corpus, []).append(line)
    out = []
    for corpus, all_ in by_corpus.items():
        out.append(score(corpus, "", [line for line in all_ if line.counts]))
        groups = dict.fromkeys(line.group for line in all_ if line.group)
        out += [score(corpus, name, [line for line in all_ if line.group == name]) for name in groups]
    return out


def _described(line: LabelledCase) -> str:
    text = line.fields.get("text", line.fields.get("calls", ""))
    return f"{line.where}: {text!r:.100} ({line.why})"
