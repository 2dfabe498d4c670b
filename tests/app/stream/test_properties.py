"""Properties of the whole core: what a model said is what a caller gets, however it was cut.

The input is made from the expected output: segments are drawn, written down as a model would write
them, cut into deltas, put into SSE, cut into reads, and fed. Sizes are drawn, never positions, so
that cuts fall everywhere.
"""

import json
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from app.stream.holdback import UNBOUNDED
from app.stream.pipeline import Pipeline
from gates.reply.events import CallArguments, CallStart, Event, Text, Thought
from tests.app.stream.wire import policy, run, stream

PLAIN = st.text("ab <>/é🙂ನ.\n", min_size=1, max_size=12)
VALUE = st.text('ab"\\{}[]<>/: \té🙂', max_size=10)
SIZES = st.lists(st.integers(1, 9), min_size=1, max_size=400)

hermes = st.tuples(
    st.just("hermes"),
    st.sampled_from(["web_search", "search_memory", "now"]),
    st.dictionaries(st.sampled_from(["query", "limit", "x"]), VALUE | st.integers() | st.booleans() | st.none(), max_size=3),
)  # fmt: skip
xml = st.tuples(
    st.just("xml"),
    st.sampled_from(["web_search", "search_memory"]),
    st.dictionaries(st.sampled_from(["query", "other"]), VALUE.map(lambda v: v.replace("<", "").replace(">", "")), max_size=2),
)  # fmt: skip
segments = st.lists(
    st.tuples(st.just("text"), PLAIN) | st.tuples(st.just("tag"), PLAIN) | st.tuples(st.just("field"), PLAIN) | hermes | xml,
    max_size=6,
)  # fmt: skip


def write_call(form: str, name: str, arguments: dict[str, Any]) -> str:
    if form == "hermes":
        body = json.dumps({"name": name, "arguments": arguments}, ensure_ascii=False)
        return f"<tool_call>\n{body}\n</tool_call>"
    parameters = "".join(f"<parameter={k}>\n{v}\n</parameter>\n" for k, v in arguments.items())
    return f"<tool_call>\n<function={name}>\n{parameters}</function>\n</tool_call>"


def write(said: list[Any]) -> list[tuple[str, str]]:
    """The segments as (field, text) that a model and its server would send."""
    out = []
    for kind, *rest in said:
        if kind == "field":
            out.append(("reasoning_content", rest[0]))
        elif kind == "tag":
            out.append(("content", f"<think>{rest[0]}</think>"))
        else:
            out.append(("content", rest[0] if kind == "text" else write_call(kind, *rest)))
    return out


def add(out: list[Any], kind: str, text: str) -> None:
    if text and out and out[-1][0] == kind:
        out[-1][1] += text
    elif text:
        out.append([kind, text])


def merged(events: list[Event]) -> list[Any]:
    """Events with adjacent pieces joined."""
    out: list[Any] = []
    for event in events:
        if isinstance(event, Text | Thought):
            add(out, "text" if isinstance(event, Text) else "thought", event.text)
        elif isinstance(event, CallStart):
            out.append(["call", event.name, ""])
        elif isinstance(event, CallArguments):
            assert out[-1][0] == "call", "arguments follow their call at once"
            out[-1][2] += event.fragment
    return [[k, n, json.loads(a[0])] if k == "call" else [k, n] for k, n, *a in out]


def wire(written: list[tuple[str, str]], sizes: list[int], **end: Any) -> bytes:
    """The reply, each segment cut into deltas of these sizes."""
    cuts = iter(sizes * 50)
    deltas: list[Any] = []
    for name, text in written:
        at = 0
        while at < len(text):
            size = next(cuts, len(text))
            deltas.append({name: text[at : at + size]})
            at += size
    return stream(*deltas, **end)


@given(segments, SIZES, SIZES, st.booleans(), st.sampled_from([0, 5, UNBOUNDED]), st.data())
def test_reads_never_change_the_outcome_even_of_a_stream_that_is_cut(
    said: list[Any], deltas: list[int], reads: list[int], thinking: bool, guard: int, data: st.DataObject
) -> None:
    wired = wire(write(said), deltas)
    wired = wired[: data.draw(st.integers(0, len(wired)))]
    rules = policy(thinking=thinking, guard=guard)
    assert digest(run(wired, rules, reads * 20)) == digest(run(wired, rules))


def digest(events: list[Event]) -> Any:
    """Everything a caller could tell apart."""
    out: list[Any] = []
    for event in events:
        if isinstance(event, Text | Thought):
            add(out, "text" if isinstance(event, Text) else "thought", event.text)
        elif isinstance(event, CallArguments) and out and out[-1][0] == "arguments":
            out[-1][1] += event.fragment
        elif isinstance(event, CallArguments):
            out.append(["arguments", event.fragment])
        else:
            out.append([type(event).__name__, repr(event)])
    return out


def grouped(data: bytes, sizes: list[int]) -> list[bytes]:
    """Whole events, a few of them in each read."""
    events = [part + b"\n\n" for part in data.split(b"\n\n") if part]
    starts = [sum(sizes[:n]) for n in range(len(sizes) + 1)]
    return [b"".join(events[a:b]) for a, b in zip(starts, [*starts[1:], None], strict=True) if events[a:b]]


@example([("text", "abaaba a"), ("tag", "a"), ("text", "abab")], [2], [1, 1, 1, 2, 2, 2, 1, 1, 1, 1])
@given(segments, SIZES, SIZES)
def test_the_short_way_gives_what_the_long_way_gives(
    said: list[Any], deltas: list[int], reads: list[int]
) -> None:
    data = wire(write(said), deltas)
    for rules in (policy(), policy(tools=False), policy(thinking=True, guard=UNBOUNDED)):
        short, long = Pipeline(rules), Pipeline(rules)
        got: list[Event] = []
        want: list[Event] = []
        for piece in grouped(data, reads):
            texts = short.passes(piece)
            got += short.feed(piece) if texts is None else [Text(0, text) for text in texts]
            want += long.feed(piece)
        assert digest([*got, *short.close()]) == digest([*want, *long.close()])
        assert short.tokens == long.tokens


SOUP = (
    ["<think>", "</think>", "<think", "[THINK]", "[/THI", "NK]", "<|channel|>analysis<|message|>", "<|chan", "<|start|>", "<|end|>"]
    + ["<|channel|>final<|message|>", "nel|>x<|message|>", "◁think▷", "<tool_call>", "</tool_call>", "<function=now>", "<function="]
    + ["now>", "<parameter=query>", "</parameter>", "</function>", '{"name": "now"', ', "arguments": {', "[TOOL_CALLS]", "[now(x=1)]"]
    + ["<", "/", ">", "{", "}", "[", "]", "(", ")", '"', "'", "`", "```\n", "~~~", "\\", "\u201c", "\xa0", " ", "\n", ",", ":", "=", "a"]
)  # fmt: skip
soups = st.lists(
    st.tuples(
        st.sampled_from(["content", "reasoning"]), st.lists(st.sampled_from(SOUP), max_size=25).map("".join)
    ),
    max_size=4,
)


@example([("content", '<tool_call>now("x")\n\nSo.')], [1], True, False, 0, "stop")
@example([("content", '{{"name": "now", "arguments": {')], [1], True, False, 0, "length")
@example([("content", '{{"name": "now", "arguments": {}}\n')], [1], True, False, 0, "stop")
@example([("content", '["a", {"name": "now", "arguments": {}}')], [1], True, False, 0, "stop")
@example([("content", 'so: {"name": "now", "arguments": {}}[TOOL_CALLS]')], [1], True, False, 0, "stop")
@given(
    soups,
    SIZES,
    st.booleans(),
    st.booleans(),
    st.sampled_from([0, 7, UNBOUNDED]),
    st.sampled_from(["stop", "length", None]),
)
def test_soup_of_tags_and_brackets_in_both_fields_is_heard_the_same_on_any_cut(
    written: list[tuple[str, str]],
    sizes: list[int],
    tools: bool,
    thinking: bool,
    guard: int,
    finish: str | None,
) -> None:
    rules, end = (
        policy(tools=tools, thinking=thinking, guard=guard),
        {"finish": finish, "done": finish is not None},
    )
    events = run(wire(written, sizes, **end), rules)
    assert digest(events) == digest(run(wire(written, [1 << 20], **end), rules))
    for call in [one for one in merged(events) if one[0] == "call"] if finish == "stop" else ():
        assert isinstance(call[2], dict)
