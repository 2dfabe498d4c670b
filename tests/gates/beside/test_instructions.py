"""Each instruction with replies that follow it and replies that do not."""

from __future__ import annotations

from typing import Any

import pytest

from gates.beside.instructions import CHECKS, MAX_CHARACTERS, broken, problem
from gates.beside.language import speaks

CASES: list[tuple[str, dict[str, Any], list[str], list[str]]] = [
    ("keywords:existence", {"keywords": ["leaf", "Wind"]}, ["A leaf in the wind."], ["A leaf.", "nothing"]),
    ("keywords:existence", {"keywords": ["a.b"]}, ["it is a.b"], ["it is axb"]),
    ("keywords:frequency", {"keyword": "train", "relation": "at least", "frequency": 2},
     ["Train after train."], ["One train."]),
    ("keywords:forbidden_words", {"forbidden_words": ["blue"]}, ["A bluebird."], ["It is Blue.", "blue"]),
    ("keywords:letter_frequency", {"letter": "t", "let_relation": "less than", "let_frequency": 2},
     ["one t"], ["two T t"]),
    ("keywords:letter_frequency", {"letter": "#", "let_relation": "at least", "let_frequency": 2},
     ["#a #b"], ["#a"]),
    ("language:response_language", {"language": "de"}, ["Das ist nicht der Tee, und auch kein Brot."],
     ["This is not the tea."]),
    ("language:response_language", {"language": "kn"}, ["ಚಹಾ ಮಾಡುವುದು ಸುಲಭ."], ["Tea is easy.", "ಚಹಾ is what they make of it"]),
    ("length_constraints:number_sentences", {"relation": "less than", "num_sentences": 3},
     ["One. Two!"], ["One. Two. Three?"]),
    ("length_constraints:number_paragraphs", {"num_paragraphs": 2},
     ["one\n***\ntwo", "***\none\n***\ntwo\n***"], ["one", "one *** *** two", "a *** b *** c"]),
    ("length_constraints:number_words", {"relation": "at least", "num_words": 3}, ["one two three"], ["one two"]),
    ("length_constraints:nth_paragraph_first_word",
     {"num_paragraphs": 2, "nth_paragraph": 2, "first_word": "later"},
     ["First.\n\nLater, that day."], ["First.\n\nThen.", "Later.", "a\n\nLater\n\nb"]),
    ("detectable_content:number_placeholders", {"num_placeholders": 2}, ["[name] of [place]"], ["[name]", "]["]),
    ("detectable_content:postscript", {"postscript_marker": "P.S."}, ["Yes.\nP.S. Thanks", "P. S. so"], ["Yes. PS so"]),
    ("detectable_content:postscript", {"postscript_marker": "P.P.S"}, ["p.p.s. more"], ["P.S. more"]),
    ("detectable_format:number_bullet_lists", {"num_bullets": 2}, ["* a\n- b", "text\n  * a\n  * b"],
     ["* a", "**bold** one\n* a", "* a\n* b\n* c"]),
    ("detectable_format:constrained_response", {}, ["My answer is yes.", "Well. My answer is maybe."], ["Yes."]),
    ("detectable_format:number_highlighted_sections", {"num_highlights": 2}, ["*a* and **b**"], ["*a*", "** **"]),
    ("detectable_format:multiple_sections", {"section_spliter": "Section", "num_sections": 2},
     ["Section 1\na\nSection 2\nb"], ["Section 1\na", "Section a Section b"]),
    ("detectable_format:json_format", {}, ['{"a": 1}', '```json\n[1]\n```', "```\n{}\n```"],
     ["a: 1", 'Here: {"a": 1}', '{"a": 1} so', "[" * 5000]),
    ("detectable_format:title", {}, ["<<Rain>>\nIt rains."], ["<Rain>", "<<  >>"]),
    ("combination:two_responses", {}, ["a\n******\nb"], ["a", "a ****** a", "a ****** b ****** c"]),
    ("combination:repeat_prompt", {"prompt_to_repeat": "Which animal barks?"},
     ["which animal barks? A dog."], ["A dog."]),
    ("startend:end_checker", {"end_phrase": "Sleep well."}, ["Count sheep. Sleep well.", '"Sleep well."'],
     ["Sleep well. Bye."]),
    ("startend:quotation", {}, ['"All of it."'], ['"Not" all', '"']),
    ("change_case:capital_word_frequency", {"capital_relation": "at least", "capital_frequency": 1},
     ["It is HOT."], ["It is hot."]),
    ("change_case:english_capital", {}, ["LEAVE THE HOUSE."], ["Leave the house.", "123"]),
    ("change_case:english_lowercase", {}, ["it is a cat."], ["It is a cat.", "das ist nicht die katze und auch nicht der hund"]),
    ("punctuation:no_comma", {}, ["No comma here."], ["One, two."]),
]  # fmt: skip


@pytest.mark.parametrize("name, given, good, bad", CASES, ids=[f"{n}-{i}" for i, (n, *_) in enumerate(CASES)])
def test_what_follows_an_instruction_and_what_does_not(
    name: str, given: dict[str, Any], good: list[str], bad: list[str]
) -> None:
    assert problem(name, given) is None
    for reply in good:
        assert broken(reply, [name], [given]) == [], reply
    for reply in bad:
        assert broken(reply, [name], [given]) == [name], reply


def test_every_instruction_of_ifeval_is_known() -> None:
    """25 ids, each shown above."""
    assert len(CHECKS) == 25
    assert {name for name, *_ in CASES} == CHECKS.keys()


@pytest.mark.parametrize("reply", ["", "  \n", "a" * (MAX_CHARACTERS + 1)])
def test_nothing_and_far_too_much_follow_no_instruction(reply: str) -> None:
    assert broken(reply, ["punctuation:no_comma"], [{}]) == ["punctuation:no_comma"]


@pytest.mark.parametrize(
    "name, given, words",
    [
        ("detectable_format:haiku", {}, "no instruction that is known"),
        ("keywords:existence", {}, "needs keywords, a list of texts"),
        ("keywords:existence", {"keywords": "leaf"}, "a list of texts"),
        ("keywords:existence", {"keywords": []}, "a list of texts"),
        ("length_constraints:number_words", {"relation": "at least", "num_words": True}, "a whole number"),
        ("length_constraints:number_words", {"relation": "about", "num_words": 3}, "not one of less than"),
        ("language:response_language", {"language": "tlh"}, "not recognized"),
        ("startend:end_checker", {"end_phrase": None}, "a text"),
    ],
)
def test_what_cannot_be_checked_is_said(name: str, given: dict[str, Any], words: str) -> None:
    assert words in (problem(name, given) or "")


@pytest.mark.parametrize(
    "text, language, good",
    [
        ("Le pain et le vin sont dans la maison.", "fr", True),
        ("Le pain et le vin sont dans la maison.", "es", False),
        ("La casa es una de las más altas.", "es", True),
        ("Το ψωμί", "el", True),
        ("Хлеб на столе", "ru", True),
        ("Хлеб", "en", False),
        ("パンです", "ja", True),
        ("Paris", "fr", True),
        ("", "de", True),
    ],
)
def test_languages(text: str, language: str, good: bool) -> None:
    assert speaks(text, language) is good


def test_an_unknown_language_is_neither() -> None:
    assert speaks("nuqneH", "tlh") is None
