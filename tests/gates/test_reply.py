"""What an engine said and when: recorded streams, every split of them, and every odd shape."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.telemetry.clocks import Clocks
from gates.contracts.sample import Sample, SampleKey, TimedRead, TransportFault
from gates.reply.events import Broken
from gates.reply.reply import SENTENCE_END, Reply, read_reply
from gates.reply.sse import EventTooLong, SSEDecoder
from tests.looped import looped
from tests.script import DONE, chunk, event, finish, role, text, thought, usage

STREAMS = Path(__file__).parents[1] / "data" / "streams"
GOLDENS = sorted(path.stem for path in STREAMS.glob("*.sse"))
# What only the gateway makes good is not the engine's: raw text, and vLLM 0.24's cut calls.
_UNPARSED = ("vllm-raw", "llama-stranger", "gpu-hermes-tools", "gpu-xml-tools")
_MENDED = ("tool-cut-by-length",)
PARSED = [
    name
    for name in GOLDENS
    if not name.startswith(_UNPARSED) and not (name.startswith("gpu-") and name.endswith(_MENDED))
]
"""Where the engine tells thoughts and calls from text; of the others the gateway does."""

KEY = SampleKey("sha256:s", "sha256:a", "sha256:e", "sha256:r", "candidate", "hello", 0, "stream")


def sample(reads: Iterable[bytes], status: int | None = 200, fault: TransportFault | None = None) -> Sample:
    """The nth read came at n ms."""
    timed = tuple(TimedRead(at * 1_000_000, data) for at, data in enumerate(reads, start=1))
    return Sample(KEY, {}, "2026-11-21T09:30:00.000+00:00", status, 500_000, timed, 0, fault)


def heard(*reads: bytes, **more: Any) -> Reply:
    return read_reply(sample(reads, **more))


def ms(reply: Reply) -> dict[str, float]:
    """The clocks that were stopped, in milliseconds."""
    clocks = reply.clocks
    names = ("token", "reasoning", "content", "tool", "sentence", "last")
    return {name: at / 1e6 for name in names if (at := getattr(clocks, name)) is not None}


def golden(name: str) -> tuple[bytes, dict[str, Any], dict[str, Any]]:
    """Raw bytes, who sent them, and what a caller of the gateway hears of them."""
    sidecar, caller = (
        json.loads((STREAMS / f"{name}{end}").read_text("utf-8")) for end in (".json", ".heard.json")
    )
    return (STREAMS / f"{name}.sse").read_bytes(), sidecar, caller["streaming"]


def whole(message: dict[str, Any], reason: str | None = "stop", **more: Any) -> bytes:
    choice = {"index": 0, "message": {"role": "assistant", **message}, "finish_reason": reason}
    return json.dumps({"object": "chat.completion", "choices": [choice], **more}).encode()


# ---------------------------------------------------------------------------------- recorded streams


@looped("name", PARSED)
def test_a_recorded_stream_says_what_the_gateway_hears(name: str) -> None:
    raw, sidecar, caller = golden(name)
    reply = heard(raw, status=sidecar["status"])

    assert reply.content.lstrip("\n") == caller.get("content", "")
    assert reply.reasoning == caller.get("thought", "")
    assert [[c.name, c.arguments] for c in reply.calls] == caller.get("calls", [])
    assert reply.finish_reason == caller.get("finish")
    assert reply.usage == caller.get("usage")
    assert reply.complete == caller.get("done", False)


@given(st.data())
def test_an_event_happens_with_the_read_that_completes_it(data: st.DataObject) -> None:
    before = role() + thought("Hm. ")
    body = before + text("It is ten.") + finish() + DONE
    cuts = sorted(data.draw(st.sets(st.integers(1, len(body) - 1), max_size=12)))
    reads = [body[a:b] for a, b in zip([0, *cuts], [*cuts, len(body)], strict=True)]

    def read_of(last_byte: int) -> int:
        return 1 + sum(cut <= last_byte for cut in cuts)

    clocks = ms(heard(*reads))

    assert clocks["reasoning"] == clocks["token"] == read_of(len(before) - 1)
    assert clocks["content"] == clocks["last"] == read_of(len(before + text("It is ten.")) - 1)


# ------------------------------------------------------------------------------------------- clocks


SILENT = (
    role(),
    chunk({"role": "assistant", "content": None}),
    chunk({"content": None, "reasoning": None, "tool_calls": None}),
    chunk({"content": "", "reasoning_content": "", "tool_calls": []}),
    chunk({"role": "assistant"}, prompt_progress={"total": 900, "cache": 0, "processed": 512}),
    chunk({"tool_calls": [{"index": 0, "id": "c", "type": "function", "function": {}}]}),
    usage(0),
    b": ping\n\ndata:\n\nevent: message\nid: 7\nretry: 10\n\n",
)


def test_what_is_no_text_stops_no_clock() -> None:
    for silent in SILENT:
        clocks = ms(heard(silent, text("Hi."), finish()))
        assert clocks == {"token": 2, "content": 2, "last": 2, "sentence": 3}, silent


@pytest.mark.parametrize(
    "pieces, at",
    [
        (["It is 3.", "5 degrees. ", "Dress warmly."], 2),
        (["Hello there.", " How are you?"], 2),
        (["Hello there. ", "How are you?"], 1),
        (['"Stop!"', " he said."], 2),
        (["ನಮಸ್ಕಾರ। ", "ಹೇಗಿದ್ದೀರಿ?"], 1),
        (["No end", " in sight"], 3),
    ],
)
def test_the_first_sentence_is_over_when_a_voice_can_know_it(pieces: list[str], at: int) -> None:
    assert ms(heard(*map(text, pieces), finish()))["sentence"] == at


# ------------------------------------------------------------------------------------------- shapes


CALL_SHAPES = {
    "no-arguments-key": ([{"index": 0, "id": "x", "function": {"name": "f"}}], [("f", "")]),
    "null-arguments": ([{"index": 0, "function": {"name": "f", "arguments": None}}], [("f", "")]),
    "no-index": ([{"function": {"name": "f", "arguments": "{}"}}, {"function": {"name": "g"}}],
                 [("f", "{}"), ("g", "")]),
    "object-arguments": ([{"index": 0, "function": {"name": "f", "arguments": {"a": "ü"}}}],
                         [("f", '{"a": "ü"}')]),
    "one-index-for-two": ([{"index": 0, "id": "x", "function": {"name": "f", "arguments": '{"a":1}'}},
                           {"index": 0, "id": "x", "function": {"name": "f", "arguments": '{"a":2}'}}],
                          [("f", '{"a":1}'), ("f", '{"a":2}')]),
    "other-id": ([{"index": 0, "id": "x", "function": {"name": "f", "arguments": '{"a"'}},
                  {"index": 0, "id": "y", "function": {"name": "f", "arguments": "{}"}}],
                 [("f", '{"a"'), ("f", "{}")]),
    "name-said-again": ([{"index": 0, "id": "x", "function": {"name": "f", "arguments": '{"a"'}},
                         {"index": 0, "id": "x", "function": {"name": "f", "arguments": ":1}"}}],
                        [("f", '{"a":1}')]),
    "two-at-once": ([{"index": 0, "function": {"name": "f", "arguments": '{"a":'}}, {"index": 1, "function": {"name": "g", "arguments": ""}},
                     {"index": 1, "function": {"arguments": '{"b": 1.50}'}}, {"index": 0, "function": {"arguments": " 1}"}}],
                    [("f", '{"a": 1}'), ("g", '{"b": 1.50}')]),
    "broken-json": ([{"index": 0, "function": {"name": "f", "arguments": "{'a': 1,}"}}], [("f", "{'a': 1,}")]),
}  # fmt: skip


@pytest.mark.parametrize("deltas, calls", CALL_SHAPES.values(), ids=CALL_SHAPES)
def test_odd_calls_are_read_and_not_repaired(deltas: list[Any], calls: list[tuple[str, str]]) -> None:
    chunks = [deltas] if "index" not in deltas[0] else [[delta] for delta in deltas]
    reply = heard(*(chunk({"tool_calls": part}) for part in chunks))

    assert [(c.name, c.arguments) for c in reply.calls] == calls


# -------------------------------------------------------------------------------------- how it ended


BROKEN = TransportFault("broken", "the connection was closed")
ENDS = {
    "cut": ([text("Hi")], BROKEN),
    "cut-before-done": ([text("Hi."), finish()], BROKEN),
    "ends-without-a-reason": ([text("Hi"), DONE], None),
    "llama-error": ([text("Hi"), event({"error": {"code": 500, "message": "boom", "type": "server_error"}})], None),
    "vllm-error": ([text("Hi"), event({"error": {"message": "boom", "code": 500}}), DONE], None),
    "text-error": ([text("Hi"), event({"error": "boom"})], None),
    "error-field": ([text("Hi"), b'error: {"code":500,"message":"boom"}\n\n'], None),
    "no-json": ([text("Hi"), b"data: {oops\n\n", finish(), DONE], None),
    "whole-without-a-reason": ([whole({"content": "Hi"}, None)], None),
}  # fmt: skip


@pytest.mark.parametrize(
    "status, body, error",
    [
        (200, event({"error": {"code": 500, "message": "boom"}}), ("boom", 500)),
        (200, event({"error": "boom"}), ("boom", 0)),
        (200, event({"error": {"detail": "boom", "code": "bad_thing"}}), ("boom", 0)),
        (200, event({"error": ["boom"]}), ("the engine reported an error", 0)),
        (200, b"error: boom\n\n", ('not a chat completion: {"error":boom}', 0)),
        (400, b'{"error":{"message":"too long","code":400}}', ("too long", 400)),
        (502, b"<html>\n Bad Gateway</html>", ("not a chat completion: <html> Bad Gateway</html>", 502)),
        (503, b"overloaded", ("overloaded", 503)),
        (500, b"", ("HTTP 500 without a word", 500)),
    ],
)
def test_an_error_is_read_in_all_its_shapes(status: int, body: bytes, error: tuple[str, int]) -> None:
    found = heard(body, status=status).error
    assert isinstance(found, Broken) and (found.message, found.status) == error


def test_a_choice_that_was_not_asked_for_is_an_error() -> None:
    assert heard(event({"choices": [{"index": 1, "delta": {"content": "B"}}]})).error is not None


TABLE = {
    "LF": (b"data: a\n\ndata: b\n\n", [b"a", b"b"]),
    "CRLF": (b"data: a\r\n\r\ndata: b\r\n\r\n", [b"a", b"b"]),
    "CR": (b"data: a\r\rdata: b\r\r", [b"a", b"b"]),
    "no space after the colon": (b"data:a\n\n", [b"a"]),
    "two spaces: one belongs to the data": (b"data:  a\n\n", [b" a"]),
    "several data lines are one event": (b"data: a\r\ndata: b\r\n\r\n", [b"a\nb"]),
    "comments and other fields are nothing": (b": ping\nevent: x\nid: 1\nretry: 5\ndata: a\n\n", [b"a"]),
    "an error field is a payload": (b'error: {"code":500}\n\n', [b'{"error":{"code":500}}']),
    "an event called error is one": (b'event: error\r\ndata: {"code":500}\n\ndata: a\n\n', [b'{"error":{"code":500}}', b"a"]),
    "whatever its shape": (b"event:error\ndata: no\ndata: more\n\n", [b'{"error":no\nmore}']),
    "an error in its envelope stays in it": (b'event: error\ndata: {"error":{}}\n\n', [b'{"error":{}}']),
    "the last name of an event counts": (b"event: error\nevent: message\ndata: a\n\n", [b"a"]),
    "a field without a colon": (b"data\ndata: a\n\n", [b"\na"]),
    "no blank line at the end": (b"data: a\n\ndata: b", [b"a", b"b"]),
    "line separators of Unicode are text": ("data: a\u2028b\u2029c\u0085d\x0ce\n\n".encode(), ["a\u2028b\u2029c\u0085d\x0ce".encode()]),
    "blank lines alone are nothing": (b"\n\n\r\n\r\n", []),
}  # fmt: skip


@pytest.mark.parametrize("data, expected", TABLE.values(), ids=TABLE.keys())
@pytest.mark.parametrize("size", [1, 2, 3, 5, 1000])
def test_payloads_are_the_same_however_the_bytes_arrive(
    data: bytes, expected: list[bytes], size: int
) -> None:
    decoder = SSEDecoder()
    got = [p for at in range(0, len(data), size) for p in decoder.feed(data[at : at + size])]
    assert got + decoder.close() == expected


@pytest.mark.parametrize("piece", [b"x" * 7, b"data: xx\n"])
def test_an_event_that_never_ends_is_refused_at_the_limit(piece: bytes) -> None:
    decoder = SSEDecoder(limit=100)

    def feed_for_ever() -> None:
        while True:
            decoder.feed(b"data: " + piece if piece.startswith(b"x") else piece)

    with pytest.raises(EventTooLong):
        feed_for_ever()


def test_the_short_way_takes_only_whole_events() -> None:
    assert SSEDecoder().whole_payloads(b'data: {"a": 1}\n\n') == [b'{"a": 1}']
    assert SSEDecoder().whole_payloads(b"data: a\n\ndata: b\n\n") == [b"a", b"b"]
    for data in (b"data: a\n", b"data: a\ndata: b\n\n", b"data: a\rdata: b\n\n", b": a\n\n", b"data:a\n\n"):
        assert SSEDecoder().whole_payloads(data) is None
    busy = SSEDecoder()
    busy.feed(b"data: begun")
    assert busy.whole_payloads(b"data: a\n\n") is None


@given(st.text(alphabet="ab3.!? \n\"')।…", max_size=24))
def test_the_gate_and_the_gateway_know_a_sentences_end_at_the_same_character(said: str) -> None:
    clocks = Clocks(0.0)
    for position, character in enumerate(said, start=1):
        clocks.text(character, float(position))

    found = SENTENCE_END.search(said)
    assert (found and found.end()) == clocks.first_sentence
