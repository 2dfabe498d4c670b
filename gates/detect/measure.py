"""Recall and false-positive rates of the detectors over their corpora, with exact intervals."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from gates.detect.corpus import LabelledCase
from gates.stats.binomial import clopper_pearson, clopper_pearson_upper

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
