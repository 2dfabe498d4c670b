"""The corpora: well formed, large enough, and over their bars; and the command that measures them."""

import json
from collections import Counter
from pathlib import Path

import pytest

from gates.contracts.errors import SuiteError
from gates.detect import corpus as corpora
from gates.detect.__main__ import main
from gates.detect.corpus import OF_PLAIN_TEXT, load, load_all, load_real, scores

LINES = load_all()
SCORES = {s.corpus: s for s in scores(LINES) if not s.group}


@pytest.mark.parametrize("name", sorted(SCORES))
def test_a_corpus_has_enough_of_both_kinds(name: str) -> None:
    least = {"leak": 40, "markdown": 40, "leak-nano": 200}.get(name, 20)
    assert SCORES[name].recall.of >= least
    assert SCORES[name].false_positives.of >= least


@pytest.mark.parametrize("name", sorted(SCORES))
def test_a_detector_is_right_about_every_case_that_counts(name: str) -> None:
    if name != "leak":  # a thought of one sentence may show one sign only
        assert not SCORES[name].missed
    assert not SCORES[name].mistaken
    assert SCORES[name].reaches


@pytest.mark.parametrize("name", OF_PLAIN_TEXT)
def test_a_detector_holds_on_real_texts(name: str) -> None:
    whole = scores(load_real(name))[0]
    assert whole.recall.of + whole.false_positives.of >= 3000
    assert whole.reaches, [*whole.missed, *whole.mistaken]


def test_no_case_is_there_twice() -> None:
    keys = Counter((line.corpus, json.dumps(dict(line.fields), sort_keys=True)) for line in LINES)
    assert [key for key, n in keys.items() if n > 1] == []


@pytest.mark.parametrize(
    "name", sorted({line.corpus for line in LINES if line.detector not in ("leak", "toolcall")})
)
def test_kannada_is_in_every_corpus_by_hand(name: str) -> None:
    texts = [str(line.fields.get("text")) for line in LINES if line.corpus == name]
    assert any("\u0c80" <= c <= "\u0cff" for text in texts for c in text)


# ------------------------------------------------------------------------------------------- reading


@pytest.mark.parametrize(
    "line", ["{", "[]", '{"text": "a"}', '{"label": "maybe", "why": "x"}', '{"label": "hit", "why": ""}']
)
def test_a_damaged_line_names_its_place(line: str, tmp_path: Path) -> None:
    (tmp_path / "leak.jsonl").write_text(f"\n\n{line}\n")
    with pytest.raises(SuiteError, match=r"leak\.jsonl:3: "):
        load(tmp_path / "leak.jsonl")


def test_a_file_of_no_detector_is_refused(tmp_path: Path) -> None:
    (tmp_path / "odour.jsonl").write_text("")
    with pytest.raises(SuiteError, match="named after no detector"):
        load(tmp_path / "odour.jsonl")


# ------------------------------------------------------------------------------------------- command


def test_the_command_prints_a_table_and_says_whether_the_bars_were_reached(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["loop", "empty"]) == 0
    out = capsys.readouterr().out
    assert "reached" in out
    assert "loop" in out
    assert "markdown" not in out


def test_the_command_fails_below_the_bar_and_names_what_was_missed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = [{"label": "hit", "why": "plain words", "text": "a"}, {"label": "clean", "why": "x", "text": "b"}]
    (tmp_path / "markdown.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    monkeypatch.setattr(corpora.load_all, "__defaults__", (tmp_path,))
    assert main(["markdown"]) == 1
    assert "plain words" in capsys.readouterr().out


def test_a_detector_that_does_not_exist_is_a_usage_error(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["odour"])
    assert "no detector odour; there are leak" in capsys.readouterr().err
