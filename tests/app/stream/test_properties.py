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
from tests.app.stream.wire import chunk, pieces, policy, run, stream

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


def test_hard_spaces_before_a_tag_count_as_others_wherever_the_text_is_cut() -> None:
    words = ("The", " tags", "\xa0", "\xa0", "<think> and </think> mark it.")
    assert digest(run(stream(*words), policy())) == digest(run(stream("".join(words)), policy()))


@given(st.binary(max_size=200), SIZES)
def test_arbitrary_bytes_break_the_stream_and_nothing_else(noise: bytes, sizes: list[int]) -> None:
    pipeline = Pipeline(policy())
    events = [
        e for p in pieces(stream("Hi.", finish=None, done=False) + noise, sizes) for e in pipeline.feed(p)
    ]
    events += pipeline.close()
    assert type(events[-1]).__name__ in ("Broken", "Done")
    assert pipeline.over and not pipeline.feed(chunk("more")) and not pipeline.close()


# ------------------------------------------------------------------ thoughts and calls, well made or not

QUIET = "SECRET"
thoughts = st.recursive(
    st.just(QUIET),
    lambda inner: st.tuples(
        st.sampled_from(
            [
                ("<think>", "</think>"),
                ("<Think >", "</ think>"),
                ("[THINK]", "[/THINK]"),
                ("◁think▷", "◁/think▷"),
            ]
        ),
        inner,
        st.just(QUIET),
    ).map(lambda t: f"{t[0][0]}{t[1]}{t[0][1]}{t[2]}"),
    max_leaves=3,
).map(lambda text: f"<think>{text}</think>")
broken = st.sampled_from(
    [
        '{"arguments": {"q": "SECRET"}}',
        "{'name': 'SECRET'}",
        '[{"name": "SECRET"}]',
        '```json\n{"name": "SECRET"}\n```',
        '{"name": <think>SECRET</think>}',
        "<function=now>SECRET</function>",
        'now("SECRET")',
        '{"x": "SECRET</tool_call>SECRET"',
    ]
).map(lambda body: f"<tool_call>{body}\n</tool_call>")
good = st.sampled_from(
    [
        '<tool_call>{"name": "now", "arguments": {}}</tool_call>',
        "<tool_call>\n<function=web_search>\n<parameter=query>\n<think>\n</parameter>\n</function>\n</tool_call>",
        '<tool_call>{"name": "web_search", "arguments": {"query": "</think>"}}</tool_call>',
    ]
)
spoken = st.sampled_from(
    ["Hi. ", "a < b ", "[1] ", "`<think>` ", "the <tool_call> tag ", "\n", "…", "</tool_call>"]
)
reasoned = st.sampled_from(["SECRET", "SECRET</think>", "\n", "SECRET <tool_call>SECRET"])
manners = st.lists(
    st.tuples(st.just("content"), spoken | thoughts | broken | good)
    | st.tuples(st.just("reasoning"), reasoned),
    max_size=7,
)
lost = st.sampled_from(["", "SECRET</think>", "SECRET " + QUIET + "[/THINK]"])


def heard_of(events: list[Event]) -> str:
    return "".join(e.text for e in events if isinstance(e, Text))


@given(lost, manners, SIZES, SIZES, st.sampled_from([(160, 160), (UNBOUNDED, UNBOUNDED)]))
def test_no_cut_changes_what_is_heard_and_nothing_secret_ever_is(
    before: str, said: list[tuple[str, str]], deltas: list[int], reads: list[int], held: tuple[int, int]
) -> None:
    written = [("content", before), *said, ("content", "\n\nSo.")] if held[0] else said
    rules = policy(guard=held[0], after=held[1])
    whole = run(wire(written, [1 << 20]), rules)
    assert digest(run(wire(written, deltas), rules)) == digest(whole)
    assert digest(run(wire(written, [1]), rules, reads * 20)) == digest(whole)
    assert QUIET not in heard_of(whole)


@given(manners, SIZES)
def test_a_whole_reply_is_heard_as_a_stream_that_had_nothing_to_take_back(
    said: list[tuple[str, str]], deltas: list[int]
) -> None:
    streamed = run(wire(said, deltas), policy(guard=0, after=0))
    whole = run(wire(said, deltas), policy(guard=UNBOUNDED, after=UNBOUNDED))
    if not any(isinstance(event, Thought) and event.kind == "orphan" for event in whole):
        assert heard_of(whole) == heard_of(streamed)


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
