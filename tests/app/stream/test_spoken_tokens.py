"""Tokens and the text that is heard: each is the heard token's, or none is told."""

import json
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.stream.pipeline import Pipeline, StreamPolicy
from app.stream.spoken_tokens import SpokenTokens
from gates.reply.events import Event, Logprobs, Text, Thought


def payload(token: str, number: int, *, field: str = "content", said: str | None = None) -> bytes:
    """A chunk of one token, whose log-probability is its number."""
    entry = {"token": token, "logprob": -float(number), "bytes": list(token.encode()), "top_logprobs": []}
    delta = {field: token if said is None else said}
    choice = {"index": 0, "delta": delta, "logprobs": {"content": [entry]}, "finish_reason": None}
    return json.dumps({"choices": [choice]}).encode()


def heard(tokens: Sequence[str | tuple[str, str]], at_once: int = 1) -> list[tuple[str, int]]:
    """What a caller is told of these tokens: (token, number). A pair names the field that it came in."""
    spoken, pipeline, told = SpokenTokens(), Pipeline(StreamPolicy()), []
    payloads = [
        payload(token, number) if isinstance(token, str) else payload(token[1], number, field=token[0])
        for number, token in enumerate(tokens)
    ]
    end = b'{"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}'
    frames = [b"data: %b\n\n" % one for one in [*payloads, end]]
    events: list[Event] = []
    for at in range(0, len(frames), at_once):
        data = b"".join(frames[at : at + at_once])
        spoken.data(data)
        events += spoken.align(pipeline.feed(data))
    for event in events:
        if isinstance(event, Logprobs):
            told += [(token.token, int(-token.logprob)) for token in event.tokens]
    return told


@pytest.mark.parametrize("at_once", [1, 2, 3, 99])
def test_every_token_of_plain_speech_is_told(at_once: int) -> None:
    """However many came in one read, and though words repeat."""
    tokens = ["I", " am", " a", " a", " I", ".", " a"]
    assert heard(tokens, at_once) == [(token, number) for number, token in enumerate(tokens)]


@pytest.mark.parametrize("at_once", [1, 2, 99])
@pytest.mark.parametrize(
    ("tokens", "told"),
    [
        (["<think>", "Hm", "</think>", "Yes", "."], []),
        ([("reasoning_content", "Hm"), "Yes", "."], [("Yes", 1), (".", 2)]),
        ([("reasoning", "Yes"), "Yes"], [("Yes", 1)]),
        (["\n\n", "Yes"], [("Yes", 1)]),
        (["\nYes", "."], [(".", 1)]),
        (["a", " <", "b"], [("a", 0), (" <", 1), ("b", 2)]),
        (
            ["Yes", ".", "<tool_call>", '{"name": "f", "arguments": {}}', "</tool_call>"],
            [("Yes", 0), (".", 1)],
        ),
    ],
)
def test_nothing_is_told_of_what_is_not_heard(
    tokens: list[str | tuple[str, str]], told: list[tuple[str, int]], at_once: int
) -> None:
    assert heard(tokens, at_once) == told


def test_parts_of_a_character_are_told() -> None:
    """Two tokens make one character, which the engine says with the second."""
    spoken = SpokenTokens()
    parts = [(b"\xe0\xb2", ""), (b"\xb9", "ಹ")]
    told = []
    for part, text in parts:
        entry = {"token": "?", "logprob": -1.0, "bytes": list(part), "top_logprobs": []}
        choice = {"index": 0, "delta": {"content": text}, "logprobs": {"content": [entry]}}
        spoken.payload(json.dumps({"choices": [choice]}).encode())
        told += spoken.align([Text(0, text)] if text else [])
    assert [len(event.tokens) for event in told if isinstance(event, Logprobs)] == [2]


def test_a_legacy_completions_form_is_read() -> None:
    spoken = SpokenTokens()
    told = {
        "tokens": ["a", "b"],
        "token_logprobs": [-1.0, -2.0],
        "top_logprobs": [{"a": -1.0, "c": -3.0}, None],
    }
    spoken.payload(json.dumps({"choices": [{"index": 0, "text": "ab", "logprobs": told}]}).encode())
    (first, _) = spoken.align([Text(0, "ab")])
    assert isinstance(first, Logprobs)
    assert [(token.token, token.logprob) for token in first.tokens] == [("a", -1.0), ("b", -2.0)]
    assert [one.token for one in first.tokens[0].top_logprobs] == ["a", "c"]


@pytest.mark.parametrize(
    "tag",
    [
        "<think>",
        "</think>",
        "<tool_call>",
        "<|im_end|>",
        " <|python_tag|>",
        "[TOOL_CALLS]",
        "`<think>",
        "</Think >",
    ],
)
def test_an_alternative_that_is_a_tag_is_left_out(tag: str) -> None:
    others = [
        {"token": token, "logprob": -1.0, "bytes": list(token.encode())} for token in ("a", tag, "<", "`")
    ]
    entry = {"token": "a", "logprob": -1.0, "bytes": [97], "top_logprobs": others}
    spoken = SpokenTokens()
    choice = {"index": 0, "delta": {"content": "a"}, "logprobs": {"content": [entry]}}
    spoken.payload(json.dumps({"choices": [choice]}).encode())
    (first, _) = spoken.align([Text(0, "a")])
    assert isinstance(first, Logprobs)
    assert [one.token for one in first.tokens[0].top_logprobs] == ["a", "<", "`"]


@pytest.mark.parametrize("junk", [b"", b"{", b"[1]", b'{"choices":[{"logprobs":{"content":[{"token":1}]}}]}'])
def test_junk_tells_nothing(junk: bytes) -> None:
    spoken = SpokenTokens()
    spoken.payload(junk)
    assert spoken.align([Text(0, "a"), Thought(0, "b", "tag")]) == [
        Text(0, "a"),
        Thought(0, "b", "tag"),
    ]


_PIECES = st.sampled_from(
    ["<think>", "</think>", "a", " b", "a b", "\n", "<", "ಹ", "<tool_call>", "{}", "</tool_call>"]
)


@given(st.lists(_PIECES, max_size=12), st.integers(1, 4))
def test_tokens_are_in_order_and_in_the_text(tokens: list[str], at_once: int) -> None:
    """Their texts stand in what is heard, in that order, none twice."""
    told = heard(tokens, at_once)
    numbers = [number for _, number in told]
    assert numbers == sorted(set(numbers))
    pipeline, text = Pipeline(StreamPolicy()), ""
    frames = [b"data: %b\n\n" % payload(token, 0) for token in tokens]
    end = b'data: {"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}\n\n'
    for event in pipeline.feed(b"".join([*frames, end])):
        text += event.text if isinstance(event, Text) else ""
    at = 0
    for token, _ in told:
        found = text.find(token, at)
        assert found >= 0
        at = found + len(token)


@pytest.mark.parametrize("count, most", [(1000, 1000), (25_000, 0)])
def test_a_long_reply_in_one_piece_is_aligned_or_left_out(count: int, most: int) -> None:
    """What was held to the end comes at once, text by text. Longer than is kept: nothing is told of it."""
    spoken = SpokenTokens()
    for number in range(count):
        spoken.payload(payload(f" {number}", number))
    events = spoken.align([Text(0, f" {number}") for number in range(count)])
    assert len([event for event in events if isinstance(event, Logprobs)]) == most
    assert len([event for event in events if isinstance(event, Text)]) == count


def test_the_work_for_a_long_reply_is_bounded() -> None:
    """Texts between which something was dropped are looked for one by one, but not in much."""
    spoken = SpokenTokens()
    spoken.payload(payload("x" + "ab" * 60_000, 0))
    texts = [Text(0, "ba")] * 1000
    assert spoken.align(texts) == texts


def test_tokens_of_a_long_reply_are_all_told() -> None:
    told = heard([f" {number}" for number in range(2000)], 99)
    assert [number for _, number in told] == list(range(2000))


@pytest.mark.parametrize("number", ["1e300", "-5e-324", "1.7976931348623157E+308"])
@pytest.mark.parametrize(
    "before", ['"logprob":', '"logprob": ', '"logprob":0,"top_logprobs":[{"token":"b","logprob":']
)
def test_a_number_that_is_slow_to_read_is_no_log_probability(number: str, before: str) -> None:
    """msgspec takes 12 us for it, two seconds for a megabyte of them."""
    spoken = SpokenTokens()
    token = '{"token":"a",' + before + number + ("}]}" if "[" in before else "}")
    spoken.payload(b'{"choices":[{"logprobs":{"content":[%b]}}]}' % token.encode())
    assert spoken.align([Text(0, "a")]) == [Text(0, "a")]


def test_a_word_that_looks_like_one_is_told() -> None:
    assert heard(["1e300", " 1e300"]) == [("1e300", 0), (" 1e300", 1)]
