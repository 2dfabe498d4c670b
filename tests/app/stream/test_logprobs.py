"""Tokens go out with their text, until something is taken out of it."""

import json
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.stream.logprobs import LogprobAligner
from app.stream.pipeline import Pipeline, StreamPolicy
from gates.reply.events import Event, Logprobs, Text


def payload(token: str, number: int, *, field: str = "content", said: str | None = None) -> bytes:
    """A chunk of one token, whose log-probability is its number."""
    entry = {"token": token, "logprob": -float(number), "bytes": list(token.encode()), "top_logprobs": []}
    choice = {"index": 0, "delta": {field: token if said is None else said}, "logprobs": {"content": [entry]}}
    return json.dumps({"choices": [choice]}).encode()


def aligned(payloads: Sequence[bytes], at_once: int) -> tuple[list[Event], LogprobAligner]:
    aligner = LogprobAligner()
    pipeline = Pipeline(StreamPolicy(), aligner=aligner)
    end = b'{"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}'
    frames = [b"data: %b\n\n" % one for one in [*payloads, end]]
    events: list[Event] = []
    for at in range(0, len(frames), at_once):
        events += aligner.align(pipeline.feed(b"".join(frames[at : at + at_once])))
    return events, aligner


def heard(tokens: Sequence[str | tuple[str, str]], at_once: int = 1) -> list[tuple[str, int]] | None:
    """What a caller is told of these tokens: (token, number). A pair names the field that it came in. None: it is taken back."""
    payloads = [
        payload(token, number) if isinstance(token, str) else payload(token[1], number, field=token[0])
        for number, token in enumerate(tokens)
    ]
    events, aligner = aligned(payloads, at_once)
    told = [event.tokens for event in events if isinstance(event, Logprobs)]
    assert aligner.is_over == ([] in told)
    return None if [] in told else [(token.token, int(-token.logprob)) for some in told for token in some]


@pytest.mark.parametrize("at_once", [1, 2, 3, 99])
@pytest.mark.parametrize(
    ("tokens", "told"),
    [
        (["I", " am", " a", " a", " I", "."], [("I", 0), (" am", 1), (" a", 2), (" a", 3), (" I", 4), (".", 5)]),
        (["1e300", " 1e300"], [("1e300", 0), (" 1e300", 1)]),
        (["a", " <", "b"], [("a", 0), (" <", 1), ("b", 2)]),
        ([("reasoning_content", "Hm"), "Yes", "."], [("Yes", 1), (".", 2)]),
        ([("reasoning", "Yes"), "Yes"], [("Yes", 1)]),
        (["\n\n", "Yes"], [("Yes", 1)]),
        (["\nYes", "."], [(".", 1)]),
        (["<think>", "Hm", "</think>", "Yes", "."], None),
        (["Yes", "</think>", "Yes", " no"], None),
        (["Yes", ".", "<tool_call>", '{"name": "f", "arguments": {}}', "</tool_call>", "So", "."], None),
    ],
)  # fmt: skip
def test_tokens_are_told_where_nothing_was_removed(
    tokens: list[str | tuple[str, str]], told: list[tuple[str, int]] | None, at_once: int
) -> None:
    assert heard(tokens, at_once) == told


def test_parts_of_a_character_are_told_with_it() -> None:
    """The engine says it with the second of its tokens."""
    events, _ = aligned([payload("?", 1, said=""), payload("?", 2, said="ಹ")], 1)
    assert [len(event.tokens) for event in events if isinstance(event, Logprobs)] == [2]


def test_a_legacy_completions_form_is_read() -> None:
    aligner = LogprobAligner()
    told = {
        "tokens": ["a", "b"],
        "token_logprobs": [-1.0, -2.0],
        "top_logprobs": [{"a": -1.0, "c": -3.0}, None],
    }
    aligner.feed(json.dumps({"choices": [{"index": 0, "text": "ab", "logprobs": told}]}).encode())
    (first, _) = aligner.align([Text(0, "ab")])
    assert isinstance(first, Logprobs)
    assert [(token.token, token.logprob) for token in first.tokens] == [("a", -1.0), ("b", -2.0)]
    assert [one.token for one in first.tokens[0].top_logprobs] == ["a", "c"]


@pytest.mark.parametrize(
    "junk",
    [b"", b"{", b"[1]", b'{"choices":[{"logprobs":{"content":[{"token":1}]}}]}']
    + [
        b'{"choices":[{"text":"a","logprobs":{"content":[{"token":"a","logprob":%b}]}}]}' % number
        for number in (b"1e300", b" -5e-324", b'0,"top_logprobs":[{"token":"b","logprob":1.7E+308}]')
    ],
)
def test_junk_and_numbers_that_are_slow_to_read_tell_nothing(junk: bytes) -> None:
    """msgspec takes 12 us for such a number, two seconds for a megabyte of them."""
    aligner = LogprobAligner()
    aligner.feed(junk)
    assert aligner.align([Text(0, "a")]) == [Logprobs(0, []), Text(0, "a")]


_PIECES = st.sampled_from(
    ["<think>", "</think>", "a", " b", "a b", "\n", "<", "ಹ", "<tool_call>", "{}", "</tool_call>"]
)


@given(st.lists(_PIECES, max_size=12), st.integers(1, 4))
def test_what_is_told_is_the_text_to_the_letter(tokens: list[str], at_once: int) -> None:
    events, aligner = aligned([payload(token, number) for number, token in enumerate(tokens)], at_once)
    text = "".join(event.text for event in events if isinstance(event, Text))
    said = "".join(one.token for event in events if isinstance(event, Logprobs) for one in event.tokens)
    assert aligner.is_over or said.lstrip("\n") == text
