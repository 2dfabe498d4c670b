"""Leaked thinking: by field, by token, by tag, by number and by wording; and what only sounds like it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gates.detect.corpus import load_all
from gates.detect.leak import FURTHER, MAIN, find_leaks, fold, hidden_tokens
from gates.detect.tags import added_tokens, find_broken_template

PLAIN = "The capital of Karnataka is Bengaluru."


def test_a_reasoning_field_is_a_leak_where_thinking_is_off() -> None:
    found = find_leaks(PLAIN, reasoning="They ask for a capital.")
    assert [(f.kind, f.part) for f in found] == [("reasoning", "reasoning")]
    assert find_leaks(PLAIN, reasoning="\n\n") == []


@pytest.mark.parametrize(
    "text, tag",
    [
        ("<think>Paris</think>", "<think>"),
        ("Paris</thinking>", "</thinking>"),
        ("Yes.<thin", "<thin"),
        ("[THINK]x", "[THINK]"),
        ("&lt;think&gt;", "&lt;think&gt;"),
        ("Thinking Process:\n\n1. Sum.", "Thinking Process:"),
        ("assistantfinalHello", "assistantfinal"),
        ("analysisWe need", "analysis"),
        ("◁think▷", "◁think▷"),
    ],
)
def test_a_tag_is_found_at_its_place(text: str, tag: str) -> None:
    first = next(f for f in find_leaks(text) if f.kind == "tag")
    assert text[first.start : first.end] == tag


def test_a_models_own_special_token_breaks_the_template_once() -> None:
    found = find_broken_template("Yes.<ponder>", tokens=["<ponder>", "<|im_end|>"])
    assert [f.excerpt for f in found] == ["<ponder>"]
    assert len(find_broken_template("Yes.<|im_end|>", tokens=["<|im_end|>"])) == 1


def test_added_tokens_are_read_from_a_tokenizer_without_plain_words_and_html() -> None:
    document = {
        "added_tokens": [
            *({"content": t} for t in ("<|im_end|>", "    ", "hello", "\n\n", "ab")),
            *({"content": t, "special": False} for t in ("<think>", "<table>", "</h1>")),
        ]
    }
    assert added_tokens(document) == {"<|im_end|>", "<think>"}
    assert added_tokens({}) == frozenset()


_PROSE = "The river flows east and south through many towns and fields before it meets the sea. " * 12


@pytest.mark.parametrize(
    "text, leaks",
    [
        ("Hmm, it is Canberra.", False),
        ("I need to find it. I should ask. Let me think. Maybe ask Anil.", False),
        ("I should keep it short. It is Canberra.", False),
        ("I should keep it short. No markdown. It is Canberra.", True),
        ("The user is asking for the capital. The user wants one word.", False),
        ("The user is asking for the capital. I should answer in one word.", True),
        (f"{_PROSE} The user is asking for the capital. I should answer in one word.", False),
        ("`The user is asking for the capital. I should answer in one word.`", False),
    ],
)
def test_a_thought_shows_two_kinds_of_signs_in_its_opening(text: str, leaks: bool) -> None:
    assert bool(find_leaks(text)) == leaks


@pytest.mark.parametrize(
    "content, called, tokens, unseen",
    [
        ("Paris is the capital of France.", "", 8, 0),
        ("Paris is the capital of France.", "", 60, 43),
        ("1,23,456", "", 9, 0),
        ("ಬೆಂಗಳೂರು", "", 24, 0),
        ("", 'search_memory{"query": "Priya trip"}', 26, 0),
        ("", "", 200, 196),
    ],
)
def test_tokens_that_nobody_sees_are_counted_generously(
    content: str, called: str, tokens: int, unseen: int
) -> None:
    assert hidden_tokens(content, called, "", tokens) == unseen
    kinds = {f.kind for f in find_leaks(content, called=called, completion_tokens=tokens)}
    assert ("hidden_tokens" in kinds) == (unseen > 0)


# ------------------------------------------------------------------------------------- the look-up


@given(st.text())
def test_a_folded_text_keeps_its_places(text: str) -> None:
    assert len(fold(text)) == len(text)


def test_no_sign_is_dead() -> None:
    texts = [fold(line.fields["text"]) for line in load_all() if line.detector == "leak"]
    signs = [sign for kinds in (MAIN, FURTHER) for kind in kinds.values() for sign in kind]
    dead = [sign.regex.pattern for sign in signs if not any(next(sign.spans(low), None) for low in texts)]
    assert not dead
