"""Leaked thinking: by field, by token, by tag, by number and by wording; and what only sounds like it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gates.detect.corpus import load_all
from gates.detect.leak import find_leaks, hidden_tokens
from gates.detect.leak_patterns import PATTERNS, candidates, fold, matches
from gates.detect.tags import added_tokens

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
        ("Yes.<tool_call", "<tool_call"),
        ("Paris.<|im_end|>", "<|im_end|>"),
        ("[THINK]x", "[THINK]"),
        ("&lt;think&gt;", "&lt;think&gt;"),
        ("<parameter=city>", "<parameter=city>"),
        ("assistantfinalHello", "assistantfinal"),
        ("analysisWe need", "analysis"),
        ("◁think▷", "◁think▷"),
    ],
)
def test_a_tag_is_found_at_its_place(text: str, tag: str) -> None:
    first = next(f for f in find_leaks(text) if f.kind == "tag")
    assert text[first.start : first.end] == tag


def test_a_models_own_special_token_is_a_leak_once() -> None:
    found = find_leaks("Yes.<ponder>", tokens=["<ponder>", "<|im_end|>"])
    assert [f.excerpt for f in found] == ["<ponder>"]
    assert len(find_leaks("Yes.<|im_end|>", tokens=["<|im_end|>"])) == 1


def test_added_tokens_are_read_from_a_tokenizer_and_plain_words_are_not() -> None:
    document = {
        "added_tokens": [{"content": t} for t in ("<|im_end|>", "<think>", "    ", "hello", "\n\n", "ab")]
    }
    assert added_tokens(document) == {"<|im_end|>", "<think>"}
    assert added_tokens({}) == frozenset()


_PROSE = "The river flows east and south through many towns and fields before it meets the sea. " * 12


@pytest.mark.parametrize(
    "text, leaks",
    [
        ("Hmm, it is Canberra.", False),
        ("Hmm. Let me recall. It is Canberra. Actually, I should check that.", True),
        (f"Hmm. {_PROSE} Let me recall. {_PROSE} Maybe ask again.", False),
        ("Good. Self-correction: it is twelve.", True),
        ("He praised her self-correction: it was quick.", False),
        ("Okay, we need to answer in a sentence.", True),
        ("You said this morning that we need to answer today.", False),
    ],
)
def test_light_wording_leaks_where_it_is_dense_and_begins_a_sentence(text: str, leaks: bool) -> None:
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


def test_the_cheap_look_hides_no_pattern_in_any_corpus() -> None:
    texts = {fold(line.fields["text"]) for line in load_all() if isinstance(line.fields.get("text"), str)}
    for low in texts:
        chosen = {id(pattern) for pattern in candidates(low)}
        for pattern in PATTERNS:
            if id(pattern) not in chosen:
                assert not list(matches(pattern, low)), (low, pattern.regex.pattern)


def test_no_pattern_is_dead() -> None:
    texts = [fold(line.fields["text"]) for line in load_all() if line.detector == "leak"]
    dead = [p.regex.pattern for p in PATTERNS if not any(next(matches(p, low), None) for low in texts)]
    assert not dead
