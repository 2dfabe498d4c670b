"""The one table of markers: what is known, what is not, and that the beginning of a marker is never given up."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gates.contracts.markers import HALVES, Kind, find, is_half, match, may_become, read, spellings

KNOWN: dict[Kind, tuple[str, ...]] = {
    "think": (
        "<think>", "</ Think >", "<THINKING>", "<think\n>", "<think/>", "<seed:think>", "<ifm|think_fast>", "<antThinking>",
        "<deep_think>", "<chain-of-thought>", "&lt;think&gt;", "&#60;think&#x3E;", "\uff1cthink\uff1e", "<thi\u200bnk>", "[THINK]",
        "[/THINK]", "◁think▷", "◁/think▷", "<|begin_of_thought|>", "<|END_THINKING|>", "<|channel>", "<channel|>", "<unused94>",
        '<think foo="bar">',
    ),
    "call": (
        "<tool_call>", "</tool_call>", "<minimax:tool_call>", "<longcat_tool_call>", "<functioncall>", "<start_function_call>",
        "<function=now>", "<function=now\n", '<invoke name="f">', "<｜tool▁calls▁begin｜>", "<|python_tag|>", "[TOOL_CALLS]",
        '<｜DSML｜invoke name="f">', "<|tool_call_argument_begin|>",
    ),
    "weak_call": ("<tools>", "<tool>", "<function>"),
    "part": ("</function>", "<parameter=x>", "</arg_value>"),
    "result": ("<tool_response>", "[TOOL_RESULTS]", "<｜tool▁outputs▁begin｜>"),
    "header": ("<|channel|>", "<|im_start|>", "<start_of_turn>"),
    "turn": ("<|im_end|>", "<|endoftext|>", "</s>", "<end_of_turn>", "<｜end▁of▁sentence｜>"),
    "role": ("<|user|>", "[INST]"),
    "wrapper": ("<answer>",),
    "token": ("<|assistant|>", "<|sep|>"),
}  # fmt: skip
UNKNOWN = (
    "<thinker>", "<toolbar>", "<thought-bubble>", "<thinking out loud>", "<div>", '<a href="x">', "<List>", "[Think]", "[think](url)",
    "[THINK](url)", "< 3>", "<internal>", "<s>", "<function =", "&lt;b&gt;",
)  # fmt: skip
WHOLE = [(kind, raw) for kind, some in KNOWN.items() for raw in some]


@pytest.mark.parametrize(("kind", "raw"), WHOLE)
def test_a_marker_is_of_its_kind(kind: Kind, raw: str) -> None:
    found = match(raw + " x", 0)
    assert found is not None and (found[0].kind, found[1]) == (kind, len(raw))
    assert [marker.kind for marker, _, _ in find(f"a {raw} b")] == [kind]


@pytest.mark.parametrize("raw", UNKNOWN)
def test_what_is_no_marker_is_none(raw: str) -> None:
    assert match(raw + " x", 0) is None


@pytest.mark.parametrize("raw", [raw for _, raw in WHOLE])
def test_every_beginning_of_a_marker_may_become_one(raw: str) -> None:
    assert [at for at in range(1, len(raw)) if not may_become(raw[:at], 0)] == []


@given(st.text('<>|[]&;/:-=_ \n"thinkclo09gtam\u200b\uff1c\u25c1\ufdd0TOL', max_size=14))
def test_what_may_become_a_marker_could_have_from_its_first_character_on(text: str) -> None:
    """Otherwise text would be held or not by where it was cut."""
    for first in "<[&\uff1c\u25c1":
        known = [may_become((first + text)[:at], 0) for at in range(1, len(text) + 2)]
        assert known == sorted(known, reverse=True), first + text


def test_half_a_marker_is_told_from_a_bracket_of_prose() -> None:
    assert all(is_half(f"<{half[:4]}") for half in HALVES)
    assert not any(is_half(text) for text in ("<", "a <b", "<|z|", "<to be", "[1", "&amp"))


def test_the_words_for_fuzzers_are_markers() -> None:
    assert [text for text in spellings() if read(text) is None] == []
