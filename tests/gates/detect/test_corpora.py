"""The corpora: well formed, large enough, and over their bars."""

import json
from collections import Counter

import pytest

from tests.gates.detect.corpora import OF_PLAIN_TEXT, load_all, scores

LINES = load_all()
SCORES = {s.corpus: s for s in scores() if not s.group}


@pytest.mark.parametrize("name", sorted(SCORES))
def test_a_corpus_has_enough_of_both_kinds(name: str) -> None:
    least = {"leak": 40, "markdown": 40, "leak-nano": 200}.get(name, 20)
    assert SCORES[name].recall.of >= least
    assert SCORES[name].false_positives.of >= least


@pytest.mark.parametrize("name", sorted(SCORES))
def test_a_detector_is_right_about_every_case_that_counts(name: str) -> None:
    wrong = [str(case) for case in SCORES[name].wrong if name != "leak" or not case.is_hit]
    assert not wrong  # of a thought of one sentence, one sign only may show
    assert SCORES[name].reaches


@pytest.mark.parametrize("name", OF_PLAIN_TEXT)
def test_a_detector_holds_on_real_texts(name: str) -> None:
    whole = scores(name)[0]
    assert whole.recall.of + whole.false_positives.of >= 3000
    assert whole.reaches, [str(case) for case in whole.wrong]


def test_no_case_is_there_twice() -> None:
    keys = Counter((line.corpus, json.dumps(dict(line.fields), sort_keys=True)) for line in LINES)
    assert [key for key, n in keys.items() if n > 1] == []


@pytest.mark.parametrize(
    "name", sorted({line.corpus for line in LINES if line.detector not in ("leak", "toolcall")})
)
def test_kannada_is_in_every_corpus_by_hand(name: str) -> None:
    texts = [str(line.fields.get("text")) for line in LINES if line.corpus == name]
    assert any("\u0c80" <= c <= "\u0cff" for text in texts for c in text)
