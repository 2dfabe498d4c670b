"""What an engine must not be able to do: each fault has one clear outcome, on every cut and surface."""

import json
from typing import Any

import pytest

from app.api.embeddings import Embeddings
from app.api.messages import MessagesCollector, MessagesEncoder
from app.api.responses import ResponsesCollector, ResponsesEncoder
from app.api.surface import Counts, MessageCollector
from app.errors.translate import from_status
from app.stream.call_normalizer import MAX_CALLS
from app.stream.call_reader import MAX_CALL_CHARS, read_calls
from app.stream.encode import StreamEncoder
from app.stream.json_value import MAX_DEPTH, kind_of
from app.stream.meter import ThoughtMeter, has_token
from app.stream.pipeline import Pipeline
from app.stream.schema import Tools
from gates.reply.chunks import (
    MAX_CALL_DELTAS,
    MAX_CHOICES,
    MAX_COUNT,
    MAX_ERROR_CHARS,
    MalformedChunk,
    parse_payload,
    plain_text,
    read_error,
)
from gates.reply.events import Broken, CallArguments, CallStart, Done, Text, Usage
from gates.reply.sse import EventTooLong, SSEDecoder
from tests.app.stream.wire import HEAD, chunk, policy, run, stream
from tests.looped import looped


def payload(choice: dict[str, Any] | str, **more: Any) -> bytes:
    return json.dumps({"choices": [choice], **more}).encode()


def delta(**fields: Any) -> bytes:
    return payload({"index": 0, "delta": fields})


DEEP = b"[" * 5_000
MALFORMED = {
    "another choice": payload({"index": 1, "delta": {"content": "a"}}),
    "a choice below zero": payload({"index": -1, "delta": {"content": "a"}}),
    "content is a number": delta(content=5),
    "tool_calls is an object": delta(tool_calls={}),
    "choices is an object": b'{"choices": {}}',
    "usage is a list": b'{"choices": [], "usage": []}',
    "finish_reason is a number": payload({"index": 0, "delta": {}, "finish_reason": 1}),
    "finish_reason is a sentence": payload({"index": 0, "delta": {}, "finish_reason": "well, " * 99}),
    "invalid UTF-8": b'{"choices":[{"index":0,"delta":{"content":"a\xff"}}]}',
    "invalid UTF-8 in arguments": b'{"choices":[{"index":0,"delta":{"tool_calls":[{"function":{"name":"now","arguments":"\xff"}}]}}]}',
    "a lone surrogate": b'{"choices":[{"index":0,"delta":{"content":"\\ud83d"}}]}',
    "a lone surrogate in arguments": b'{"choices":[{"index":0,"delta":{"tool_calls":[{"function":{"name":"now","arguments":"\\ud83d"}}]}}]}',
    "a NUL in a string": b'{"choices":[{"index":0,"delta":{"content":"a\x00"}}]}',
    "NaN": b'{"choices":[], "usage": {"prompt_tokens": NaN}}',
    "nested unknown field": b'{"choices":[], "x": ' + DEEP + b"]" * 5_000 + b"}",
    "nested usage": b'{"choices":[], "usage": {"a":' + DEEP + b"]" * 5_000 + b"}}",
    "nested error": b'{"error": ' + DEEP + b"]" * 5_000 + b"}",
    "nested arguments": b'{"choices":[{"index":0,"delta":{"tool_calls":[{"function":{"name":"now","arguments":' + DEEP + b"]" * 5_000 + b"}}]}}]}",
    "nested role": b'{"choices":[{"index":0,"delta":{"content":"a","role":' + DEEP + b"]" * 5_000 + b"}}]}",
    "more choices than one payload has": json.dumps({"choices": [{}] * (MAX_CHOICES + 1)}).encode(),
    "more pieces of calls than one payload has": delta(tool_calls=[{}] * (MAX_CALL_DELTAS + 1)),
    "a count of 5,000 digits": b'{"choices":[], "usage": {"prompt_tokens": ' + b"1" * 5_000 + b"}}",
}  # fmt: skip


@looped("data", MALFORMED.values())
def test_a_malformed_chunk_is_that_error_and_no_other(data: bytes) -> None:
    with pytest.raises(MalformedChunk) as told:
        parse_payload(data)
    assert len(str(told.value)) < 200
    assert plain_text(data) is None
    assert not has_token(data, 1)
    ThoughtMeter().feed(data)
    last = Pipeline(policy()).feed_message(data)[-1]
    assert isinstance(last, Broken) and last.code == "upstream_malformed"


IGNORED = {
    "delta is null": payload({"index": 0, "delta": None}),
    "function is null": delta(tool_calls=[{"index": 0, "function": None}]),
    "arguments is null": delta(tool_calls=[{"index": 0, "function": {"arguments": None}}]),
    "usage is empty": b'{"choices": [], "usage": {}}',
    "no count is one": b'{"choices": [], "usage": {"a": "1", "b": -1, "c": true, "d": [1], "e": 1e300}}',
}


@looped("data", IGNORED.values())
def test_what_says_nothing_is_nothing(data: bytes) -> None:
    assert parse_payload(data) == []


FAR = b"[1e400,-1e-400]"
"""msgspec itself calls the first of them out of range, so it is seen whether it converts them: that is slow."""


def test_no_number_is_slow_to_read() -> None:
    """In events, on the short way for text, in errors, and beside vectors."""
    assert parse_payload(b'{"choices": [], "usage": {"a": %b}}' % FAR) == []
    odd = b'{"choices": [{"index": 0, "delta": {"role": %b}, "stop_reason": %b}]}' % (FAR, FAR)
    assert parse_payload(odd) == []
    assert plain_text(b'{"choices":[{"index":0,"delta":{"content":"a","role":%b}}]}' % FAR) == "a"
    (told,) = parse_payload(b'{"error": {"code": "lost", "numbers": %b}}' % FAR)
    assert isinstance(told, Broken) and told.code == "lost"
    error = from_status(400, b'{"error": {"message": "Hm.", "code": "lost", "numbers": %b}}' % FAR, "/")
    assert (error.message, error.code) == ("Hm.", "lost")
    reply = b'{"data": [], "usage": {"prompt_tokens": 3, "numbers": %b}}' % FAR
    assert Embeddings().hand_on(reply, "annie")[1] == Usage({"prompt_tokens": 3})


def test_counts_that_are_none_reach_nobody() -> None:
    counts = {"prompt_tokens": -5, "completion_tokens": "9", "total_tokens": MAX_COUNT + 1, "x": True}
    details = {"cached_tokens": 7, "bad": "7", "deeper": {"a": 1}}
    said = {"choices": [], "usage": {**counts, "prompt_tokens_details": details, "ok": 3}}
    (usage,) = parse_payload(json.dumps(said).encode())
    assert usage == Usage({"prompt_tokens_details": {"cached_tokens": 7}, "ok": 3})
    assert Counts.of(Usage({"prompt_tokens": 2, "prompt_tokens_details": {"cached_tokens": 9}})).cached == 2


@pytest.mark.parametrize(
    "error", ["x" * 9_999, {"message": "x" * 9_999}, {"message": {"a": ["x" * 9_999]}}, ["x" * 9_999], 5, {"code": 10**30}, {"code": True}, {"type": "x" * 99}]
)  # fmt: skip
def test_an_error_of_any_shape_is_a_short_one(error: Any) -> None:
    said = read_error(error)
    assert len(said.message) <= MAX_ERROR_CHARS and said.code == "engine_error" and said.status == 0


@pytest.mark.parametrize("size", [1, 2, 3, 99])
def test_a_bom_before_a_field_takes_no_event_away(size: int) -> None:
    """Also where a proxy joined two streams: by the standard the field would be an unknown one, and its text lost."""
    data = b"\xef\xbb\xbfdata: a\n\n\xef\xbb\xbfdata: b\n\ndata: c\n\n"
    decoder = SSEDecoder()
    got = [p for at in range(0, len(data), size) for p in decoder.feed(data[at : at + size])]
    assert got == [b"a", b"b", b"c"]


def test_empty_data_lines_count_too() -> None:
    decoder = SSEDecoder(limit=100)
    with pytest.raises(EventTooLong):
        decoder.feed(b"data:\n" * 102)


# Calls.


def native(*fragments: Any, name: str = "now") -> list[Any]:
    """A call of the engine's own, its arguments in these fragments; an object is sent as it is."""
    first: dict[str, Any] = {"tool_calls": [{"index": 0, "id": "c", "function": {"name": name}}]}
    return [first, *({"tool_calls": [{"index": 0, "function": {"arguments": f}}]} for f in fragments)]


EMPTY = [
    [],
    [""],
    [" "],
    ["null"],
    ["n", "ull"],
    ["nul", "l", "\n"],
    [" ", "null"],
    [None],
    [{}],
    ["{}"],
    ["{", "}"],
]
ENCODERS: list[Any] = [
    lambda: StreamEncoder(HEAD), lambda: MessageCollector(HEAD), lambda: MessagesEncoder(HEAD), lambda: MessagesCollector(HEAD),
    lambda: ResponsesEncoder(HEAD), lambda: ResponsesCollector(HEAD),
]  # fmt: skip


@looped("fragments", EMPTY)
@pytest.mark.parametrize("after", ["", "\n", "Done."], ids=repr)
def test_no_arguments_are_an_empty_object_before_anything_else(fragments: list[Any], after: str) -> None:
    said = [
        e
        for e in run(stream(*native(*fragments), *([after] if after else [])), policy())
        if not isinstance(e, Done)
    ]
    kinds = [type(e) for e in said if not isinstance(e, Text)]
    assert kinds[0] is CallStart and "".join(e.fragment for e in said if isinstance(e, CallArguments)) == "{}"
    texts = [n for n, e in enumerate(said) if isinstance(e, Text)]
    assert all(n > at for n in texts for at, e in enumerate(said) if isinstance(e, CallArguments))


@pytest.mark.parametrize("make", ENCODERS)
@looped("fragments", EMPTY)
def test_arguments_are_never_spoken_on_any_surface(make: Any, fragments: list[Any]) -> None:
    writer = make()
    wire = writer.feed(run(stream(*native(*fragments), "Done."), policy()))
    said = (wire or writer.message()).decode()
    for text in ('"text":"Done.{}"', '"text":"{}"', '"delta":"Done.{}"', '"content":"Done.{}"'):
        assert text not in said
    assert "Done." in said


def test_words_inside_a_call_come_behind_it() -> None:
    said = run(stream(*native('{"a":')[:2], "Wait.", native("1}")[1]), policy())
    assert [type(e).__name__ for e in said[:4]] == ["CallStart", "CallArguments", "CallArguments", "Text"]


def calling(form: str, arguments: str, name: str) -> list[Any]:
    """A call with these arguments in this form; `name` is the tool that is named in JSON."""
    return {
        "hermes": [f'<tool_call>{{"name": "{name}", "arguments": {arguments}}}</tool_call>'],
        "native": native(arguments, name="run"),
        "xml": [f"<tool_call><function=run><parameter=env>{arguments}</parameter></function></tool_call>"],
    }[form]


ARGUMENTS = {
    "many digits": '{"n": ' + "1" * 308 + "}",
    "a large exponent": '{"n": -1.5e300}',
    "nested as deep as allowed": '{"n": ' + "[" * (MAX_DEPTH - 2) + "]" * (MAX_DEPTH - 2) + "}",
    "both halves": '{"n": "\\ud83d\\ude00"}',
}


@looped("arguments", ARGUMENTS.values())
@pytest.mark.parametrize("form", ["hermes", "native", "xml"])
@pytest.mark.parametrize("make", ENCODERS)
def test_valid_arguments_go_through_to_the_letter(make: Any, form: str, arguments: str) -> None:
    events = run(stream(*calling(form, arguments, "run")), policy())
    assert isinstance(events[-1], Done)
    handed = "".join(e.fragment for e in events if isinstance(e, CallArguments))
    assert arguments in handed or (form == "xml" and json.dumps(arguments) in handed)
    writer = make()
    assert writer.feed(events) or writer.message()


@pytest.mark.parametrize("depth", [MAX_DEPTH, 1_000, 100_000])
def test_nesting_has_one_bound(depth: int) -> None:
    arguments = '{"n": ' + "[" * depth + "]" * depth + "}"
    assert kind_of(arguments) == ""
    pipeline = Pipeline(policy())
    events = [*pipeline.feed(stream(*native(arguments, name="run"))), *pipeline.close()]
    assert isinstance(events[-1], Done) and pipeline.call_sources == ["invalid"]
    collector = MessagesCollector(HEAD)
    collector.feed(events)
    assert "INVALID_JSON" in collector.message().decode()


UNREADABLE = {
    "4,301 digits": '{"n": ' + "1" * 4_301 + "}",
    "a huge exponent": '{"n": [1e999]}',
    "the first half of a surrogate pair": '{"n": "\\ud83d"}',
    "and then another escape": '{"n": "\\ud83d\\n"}',
    "twice the first half": '{"n": "\\ud83d\\ud83d"}',
    "the second half": '{"n": "\\ude00"}',
}


@looped("arguments", UNREADABLE.values())
@pytest.mark.parametrize("form", ["hermes", "native", "xml"])
def test_what_nobody_could_read_makes_no_valid_call(form: str, arguments: str) -> None:
    """The gateway would refuse it in a history."""
    assert kind_of(arguments) == ""
    pipeline = Pipeline(policy())
    events = [*pipeline.feed(stream(*calling(form, arguments, "other"))), *pipeline.close()]
    handed = "".join(e.fragment for e in events if isinstance(e, CallArguments))
    if form == "xml":  # it fits no type, and stays text
        assert json.loads(handed) == {"env": arguments}
    else:
        assert pipeline.call_sources == ["invalid"] and (form == "native" or not handed)


TWICE = {
    "in a call tag": (['<tool_call>{"name": "run", "arguments": {"a": {"b": 1, "b": 2}}}</tool_call>'], "rescued"),
    "in elements": (["<tool_call><function=run><parameter=a>{}</parameter><parameter=a>{\"b\": 2}</parameter></function></tool_call>"], "rescued"),
    "in Python": (["<|python_tag|>run(a=1, a={'b': 2})"], "rescued"),
    "by the engine, in one piece": (native('{"a": 1, "a": {"b": 2}}', name="run"), "engine"),
    "by the engine, in pieces": (native('{"a": 1, ', '"a": {"b": 2}}', name="run"), "invalid"),
}  # fmt: skip


@pytest.mark.parametrize("form", TWICE)
def test_of_a_key_twice_in_a_call_the_last_value_counts(form: str) -> None:
    """The caller gets it alone, unless the engine sent it in pieces, which are not held back: this counts as an invalid call."""
    deltas, source = TWICE[form]
    pipeline = Pipeline(policy())
    events = [*pipeline.feed(stream(*deltas)), *pipeline.close()]
    handed = "".join(e.fragment for e in events if isinstance(e, CallArguments))
    assert json.loads(handed)["a"] in ({"b": 2}, '{"b": 2}') and pipeline.call_sources == [source]
    assert (handed.count('"a"') == 2) == (source == "invalid") and handed.count("b") == 1


LINES = [
    b"*" + b"a" * 200,
    b"data: " + b"a" * 101,
    b"data:" + b"a" * 101,
    b":" * 300,
    b"error: " + b"a" * 300,
]


@pytest.mark.parametrize("line", LINES)
@pytest.mark.parametrize("cut", [1, 2, 7, 150, 999])
def test_a_limit_does_not_depend_on_the_cut_and_loses_nothing_before_it(line: bytes, cut: int) -> None:
    data = b"data: a\n\n" + line + b"\n\n"
    decoder, got = SSEDecoder(limit=100), list[bytes]()

    def feed() -> None:
        for at in range(0, len(data), cut):
            got.extend(decoder.feed(data[at : at + cut]))

    with pytest.raises(EventTooLong) as told:
        feed()
    assert [*got, *told.value.payloads] == [b"a"]


@pytest.mark.parametrize("cut", [1, 3, 999])
def test_an_event_of_exactly_the_limit_passes_either_way(cut: int) -> None:
    data = b"data: " + b"a" * 100 + b"\n\n"
    assert SSEDecoder(limit=100).whole_payloads(data) == [b"a" * 100]
    decoder = SSEDecoder(limit=100)
    assert [p for at in range(0, len(data), cut) for p in decoder.feed(data[at : at + cut])] == [b"a" * 100]


def test_what_was_whole_before_an_event_that_is_too_long_is_heard() -> None:
    events = Pipeline(policy(tools=False)).feed(chunk("Hi.") + b"data: " + b"a" * (2 << 20) + b"\n\n")
    assert events[0] == Text(0, "Hi.") and isinstance(events[-1], Broken)


NAMES = ["\\ud83d", "", "a" * 129, "a\\nb"]


@pytest.mark.parametrize(
    "value", [*(f'"{name}"' for name in NAMES), "1" * 5_000, "[" * 99 + "]" * 99, "null"]
)
def test_a_name_that_can_be_none_makes_no_call(value: str) -> None:
    assert not read_calls(f'{{"name": {value}, "arguments": {{}}}}', "", Tools())


@pytest.mark.parametrize(
    "text",
    ['{"name": "now", "arguments": {"a": 1}, "arguments": {"b": 2}}', '{"name": "now", "parameters": {}, "arguments": {}}', '{"name": "now", "name": "run", "arguments": {}}', '{"name": "now", "arguments": "{\\"a\\": \\"\\ud83d\\"}"}'],
)  # fmt: skip
def test_a_call_that_says_two_things_is_none(text: str) -> None:
    assert not read_calls(text, "", Tools())


def test_a_reply_has_so_many_calls_and_no_more() -> None:
    calls = [
        {"tool_calls": [{"index": n, "function": {"name": "now", "arguments": "{}"}}]}
        for n in range(MAX_CALLS + 1)
    ]
    events = run(stream(*calls), policy())
    assert isinstance(events[-1], Broken) and events[-1].code == "upstream_too_many_calls"
    assert sum(isinstance(e, CallStart) for e in events) == MAX_CALLS


def test_arguments_have_a_longest_size() -> None:
    piece = "a" * 60_000
    events = run(stream(*native('{"a": "', *[piece] * (MAX_CALL_CHARS // 60_000 + 1))), policy())
    assert isinstance(events[-1], Broken) and events[-1].code == "upstream_call_too_long"
    assert not read_calls('{"name": "now", "arguments": {"a": "' + "a" * MAX_CALL_CHARS + '"}}', "", Tools())


def test_arguments_without_a_call_count_as_one_that_is_invalid() -> None:
    pipeline = Pipeline(policy())
    events = pipeline.feed(stream(*native('{"a":', "1}")[1:], "Hi."))
    assert pipeline.call_sources == ["invalid"] and not any(isinstance(e, CallArguments) for e in events)


# Schemas.

ODD = [
    5,
    "x",
    None,
    {},
    [5],
    [None, {"type": "integer"}],
    {"anyOf": 5},
    {"type": {"a": 1}},
    {"type": [[], 5]},
]


@pytest.mark.parametrize("key", ["anyOf", "oneOf", "allOf", "enum", "const", "type", "$ref", "properties"])
@looped("value", ODD)
def test_a_malformed_schema_says_nothing(key: str, value: Any) -> None:
    tools = Tools([{"function": {"name": "f", "parameters": {"properties": {"a": {key: value}}}}}])
    assert tools.types("f", "a")
    assert json.loads(tools.encode("f", "a", "5")) in (5, "5")
    root = Tools([{"function": {"name": "f", "parameters": {key: value}}}])
    assert root.types("f", "a") == {"string"}


REFERENCES = {
    "#/$defs/n": {"$defs": {"n": {"type": "integer"}}},
    "#/$defs/a~1b": {"$defs": {"a/b": {"type": "integer"}}},
    "#/$defs/a~0b": {"$defs": {"a~b": {"type": "integer"}}},
    "#": {"type": "integer"},
}


@pytest.mark.parametrize("ref, root", REFERENCES.items())
def test_a_reference_is_a_json_pointer(ref: str, root: dict[str, Any]) -> None:
    parameters = {**root, "properties": {"a": {"$ref": ref}}}
    assert Tools([{"function": {"name": "f", "parameters": parameters}}]).types("f", "a") == {"integer"}


@pytest.mark.parametrize(
    "ref", ["#/nowhere", "#/$defs/list/9", "#/$defs/list/x", "elsewhere.json", "", "#a", "#/properties/a"]
)
def test_a_reference_to_nothing_says_nothing(ref: str) -> None:
    parameters = {"$defs": {"list": []}, "properties": {"a": {"$ref": ref}}}
    assert Tools([{"function": {"name": "f", "parameters": parameters}}]).types("f", "a") == {"string"}
