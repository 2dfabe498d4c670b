"""Work is linear in what a peer sends: every parser, filter, encoder, schema walk and pattern.

Steps are counted, not seconds (`tests/work.py`). Each target is fed a family of hostile texts, one
character at a time and all at once; four times the text may take four times the steps, and little
more. A new parser is one more line in TARGETS.
"""

import contextlib
import json
import re
from collections.abc import Callable, Iterator
from functools import cache, partial
from importlib import import_module
from itertools import chain, product
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from app.stream.calls import LONGEST_NAME
from app.stream.segmenter import _BLOCK
from tests.app.stream.wire import TOOLS, chunk
from tests.looped import looped
from tests.scale import scaled
from tests.work import Counted, pattern_steps

SMALL = scaled(60, 100)
"""Characters of the smaller text; the larger has four times as many."""
UNTIL_DROPPED = 48 * SMALL
"""Where a bound decides that a text without an end is no call, it is read in another way from there on: dropped, where tags are
looked for, which costs several times as much. What grows too much over that place is looked at again from so many characters on."""
GROWTH = 4.5
"""How much more steps four times the text may take. Quadratic work takes sixteen times."""
SLACK = 3000
"""Steps that do not depend on the size: what is set up once, and what a bounded buffer may cost."""

CHARACTERS = [*"=<>\n `~\"'\\{}[]:,.-!1eu&a\t\0"]
WORDS = [
    "<think>", "</think>", "<think", "</", "<think   ", "<details ", ' type="reasoning"', "<details>", "</details>", "<now>", "<now", "</now>", "\nto=functions.f", "\nto=f ", "commentary", "<|constrain|>", "<tool_call>", "</tool_call>", "<tool_call>{", "<tool_call>\n<function=",
    "<function=", "<function=now>", "<parameter=", "<parameter=q>", "</parameter>", "</function>", "```\n", "~~~ ", "\n```tool_code\n", "\n```tool_c", "\n``", "\nAction: now\nAction Input: ",
    "[TOOL_CALLS]", "[ARGS]", "&lt;", "&lt;think&gt;", "\n{", "\n[", "<tool_calls>[", '{"name":', "[f(x=", "{name: ", '{"arguments":"', "> ", "\n>", "\\u", "\\u0061", '{"a":', '"a":1,', "[1,", '""', ",1", "1.5e", "Hi. ", ".\n", "`<think>`",
    '<tool_call>{"name":"now","arguments":{}}</tool_call>', '<tool_call>{"name":"x","arguments":{"a":"',
]  # fmt: skip

Feed = Callable[[str], object]


class Target(NamedTuple):
    """Something to feed. `make` gives its feed function; `prefix` brings it into one of its states.

    `least`: characters of the smaller text, which must be enough to leave a bounded buffer. `later`: see UNTIL_DROPPED.
    """

    name: str
    make: Callable[[Counted], Feed]
    prefix: str = ""
    least: int = SMALL
    later: int = 0


def sse(counted: Counted) -> Feed:
    decoder = counted("app.stream.sse").SSEDecoder()
    return lambda text: decoder.whole_payloads(text.encode()) or decoder.feed(text.encode())


def scanner(counted: Counted) -> Feed:
    return counted("app.stream.jsonscan").JSONScanner().feed  # type: ignore[no-any-return]


def kind_of(counted: Counted) -> Feed:
    """For a whole text: one character at a time it is asked about each anew."""
    return counted("app.stream.jsonscan").kind_of  # type: ignore[no-any-return]


def hermes(counted: Counted) -> Feed:
    call = counted("app.stream.hermes").HermesCall()

    return call.feed  # type: ignore[no-any-return]


def xml(counted: Counted) -> Feed:
    call = counted("app.stream.xmlcall").XMLCall(counted("app.stream.schema").Tools(TOOLS))
    return call.feed  # type: ignore[no-any-return]


def bare(counted: Counted) -> Feed:
    """JSON that may be a call; what was none is given back, and read no more here."""
    call = counted("app.stream.bare_calls").BareCall(
        0, counted("app.stream.schema").CallRules(), 0, _tags(counted)
    )
    return _in_blocks(lambda text: None if call.done else call.feed(text, []))


def loose(counted: Counted) -> Feed:
    """The same, and what is to be fed again is."""
    return _fed(
        counted("app.stream.bare_calls").BareCall(
            0, counted("app.stream.schema").CallRules(), 0, _tags(counted)
        )
    )


def named(counted: Counted) -> Feed:
    """A line that begins with a tool's name."""
    schema = counted("app.stream.schema")
    rules = schema.CallRules(schema.Tools(TOOLS))
    return _fed(counted("app.stream.named_calls").NamedCall(0, rules, 0, _tags(counted)))


def react(counted: Counted) -> Feed:
    """A line that begins with `Action`."""
    schema = counted("app.stream.schema")
    rules = schema.CallRules(schema.Tools(TOOLS))
    return _fed(counted("app.stream.react_calls").ReActCall(0, rules, 0, _thoughts(counted)))


def element(counted: Counted) -> Feed:
    """An element of XML with a tool's name."""
    schema = counted("app.stream.schema")
    rules = schema.CallRules(schema.Tools(TOOLS))
    return _fed(counted("app.stream.element_calls").ElementCall(rules, 0, _thoughts(counted), True))


def call_fence(counted: Counted) -> Feed:
    """A code fence of calls."""
    return _fed(counted("app.stream.fences").CallFence(0, _thoughts(counted)))


def _tags(counted: Counted) -> Any:
    return counted("app.stream.tags").tag_set(("think",), ("qwen",)).text


def _thoughts(counted: Counted) -> Any:
    return counted("app.stream.tags").tag_set(("think",), ()).think


def _fed(block: Any) -> Feed:
    """A block that is fed until it is done, as the segmenter does."""

    def feed(text: str) -> None:
        while text and not block.done:
            text = block.feed(text, [])

    return _in_blocks(feed)


def _in_blocks(feed: Feed) -> Feed:
    """As the segmenter reads a text."""
    return lambda text: [feed(text[at : at + _BLOCK]) for at in range(0, len(text), _BLOCK)]


def thought_call(counted: Counted) -> Feed:
    """A call in a thought; over, it takes nothing."""
    call = counted("app.stream.thought_calls").ThoughtCall("call")
    return lambda text: call.feed(text, 0, len(text))


def brackets(counted: Counted) -> Feed:
    return counted("app.stream.loose_calls").Brackets().feed  # type: ignore[no-any-return]


def fences(counted: Counted) -> Feed:
    fences = counted("app.stream.fences").Fences()

    def feed(text: str) -> object:
        fences.feed(text)
        return fences.inside, fences.line_may_open

    return feed


def clocks(counted: Counted) -> Feed:
    clocks = counted("app.stream.clocks").Clocks(0.0)
    return lambda text: clocks.text(text, 1.0)


def native_arguments(counted: Counted) -> Feed:
    return _book(counted, lambda events, text: [events.CallArguments(0, 0, text)])


def repeated_names(counted: Counted) -> Feed:
    def made(events: Any, text: str) -> list[Any]:
        return [events.CallStart(0, 0, "now", "x"), events.CallArguments(0, 0, text)]

    return _book(counted, made)


def words_in_a_call(counted: Counted) -> Feed:
    return _book(counted, lambda events, text: [events.Text(0, text), events.CallArguments(0, 0, text)])


def _book(counted: Counted, made: Callable[[Any, str], list[Any]]) -> Feed:
    events = counted("app.stream.events")
    book = counted("app.stream.call_normalizer").CallNormalizer(
        0, counted("app.stream.schema").Tools(TOOLS), "t"
    )
    book.feed(events.CallStart(0, 0, "now", "x"))
    return lambda text: [book.feed(event) for event in made(events, text)]


def nameless_fragments(counted: Counted) -> Feed:
    events = counted("app.stream.events")
    book = counted("app.stream.call_normalizer").CallNormalizer(
        0, counted("app.stream.schema").Tools(TOOLS), "t"
    )
    return lambda text: book.feed(events.CallArguments(0, 0, text))


def coerced(counted: Counted) -> Feed:
    tools = counted("app.stream.schema").Tools(TOOLS)
    return lambda text: tools.encode("run", "env", text)


def meter(counted: Counted) -> Feed:
    meter = counted("app.stream.meter").ThoughtMeter()
    return lambda text: meter.feed(json.dumps({"choices": [{"token_ids": [1] * len(text)}]}).encode())


LEAVES = [
    *(Target(f"sse {prefix!r}", sse, prefix) for prefix in ("", "data: ", "x", "data:\ndata:")),
    *(Target(f"json {prefix!r}", scanner, prefix) for prefix in ("", '{"', '{"a":', '{"a":"', '{"a":[', '{"a":{', "[[", "[1")),
    *(Target(f"hermes {prefix!r}", hermes, prefix) for prefix in ("", '{"', '{"name":"', '{"name":', '{"name":"now",', '{"name":"now","arguments":', '{"name":"now","arguments":"', '{"name":"now","arguments":{"q":"', '{"name":"now","arguments":{"q":[')),
    *(Target(f"xml {prefix!r}", xml, prefix) for prefix in ("", "run>", "run>\n<parameter=", "run><parameter=command>", "run><parameter=env>", "run><parameter=command></parameter>")),
    *(Target(f"named {prefix!r}", named, prefix) for prefix in ("", "now(", "now: {", "now(x=1 oops and so on\n{")),
    Target("named 'now(x='", named, "now(x=", later=UNTIL_DROPPED),
    *(Target(f"react {prefix!r}", react, prefix) for prefix in ("", "Action: ", "Action: now\n", "Action: now\nAction Input: {", "Action: now\nAction Input: x")),
    *(Target(f"element {prefix!r}", element, prefix) for prefix in ("<now><x>", "<now><think>")),
    Target("element '<now>'", element, "<now>", later=UNTIL_DROPPED),
    *(Target(f"fence of a call {prefix!r}", call_fence, prefix) for prefix in ("```tool_code\n", "```tool_code\n<think>")),
    *(Target(f"bare {prefix!r}", bare, prefix) for prefix in ("", "{", "[", '{"name":', '{"name":"now","arguments":{"q":"', '[{"name":"now","arguments":{}},', "{'name':'", '{"name":"now","arguments":x', '{"arguments":["')),
    *(Target(f"loose {prefix!r}", loose, prefix) for prefix in ("{ ", "[ ", "{'name':'", "[f(x=1,")),
    Target("loose '{name:'", loose, "{name:", later=UNTIL_DROPPED),
    *(Target(f"call in a thought {prefix!r}", thought_call, prefix) for prefix in ("", "{", '{"', "{'", "[f(", '{"a":', '{"a":1,', '{\\"')),
    *(Target(f"brackets {prefix!r}", brackets, prefix) for prefix in ("{", "[f(", "{a:'")),
    *(Target(f"fences {prefix!r}", fences, prefix) for prefix in ("", "  ", "```", "~~~x", "```\n", "a")),
    *(Target(f"clocks {prefix!r}", clocks, prefix) for prefix in ("", "Hi.", "Hi.'")),
    *(Target(f"native arguments {prefix!r}", native_arguments, prefix) for prefix in ("", "null", '{"a":"', '{"a":[')),
    *(Target(f"repeated names {prefix!r}", repeated_names, prefix) for prefix in ("", '{"a":"', '{"a":[')),
    Target("words in a call", words_in_a_call, '{"a":"'),
    Target("fragments without a name", nameless_fragments),
    Target("meter", meter),
]  # fmt: skip


ENCODERS = [
    ("app.stream.encode", "StreamEncoder", "MessageCollector"),
    ("app.api.completions", "CompletionEncoder", "CompletionCollector"),
    ("app.api.messages", "MessagesEncoder", "MessagesCollector"),
    ("app.api.responses", "ResponsesEncoder", "ResponsesCollector"),
]
SAID = {
    "texts": lambda events, text: [events.Text(0, text)],
    "thoughts": lambda events, text: [events.Thought(0, text)],
    "both in turn": lambda events, text: [events.Thought(0, text), events.Text(0, text)],
    "one call": lambda events, text: [events.CallArguments(0, 0, text)],
    "many calls": lambda events, text: [events.CallStart(0, 0, "now", "x"), events.CallArguments(0, 0, text)],
    "usage": lambda events, text: [events.Usage({"prompt_tokens": 1}), events.Text(0, text)],
}  # fmt: skip


def written(counted: Counted, module: str, kind: str, said: str, reasoning: str) -> Feed:
    """An encoder or collector in the middle of a reply; its end is asked for by an empty text."""
    events, head = counted("app.stream.events"), counted("app.stream.encode").ReplyHead
    made = getattr(counted(module), kind)
    more: tuple[dict[str, Any], ...] = ({},) if module.endswith("responses") else ()
    writer = made(head("x_1", 1, "annie", reasoning, True), *more)
    writer.feed([events.CallStart(0, 0, "now", "x")] if "call" in said else [events.Text(0, "Hi.")])

    def feed(text: str) -> None:
        if text:
            writer.feed(SAID[said](events, text))
            return
        writer.feed([events.Finish(0, "stop"), events.Done()])
        if hasattr(writer, "message"):
            writer.message()

    return feed


WRITERS = [
    Target(f"{kind} {said} {reasoning}", partial(written, module=module, kind=kind, said=said, reasoning=reasoning))
    for module, *kinds in ENCODERS
    for kind in kinds
    for said in SAID
    for reasoning in ("strip", "separate", "inline")
]  # fmt: skip


@cache
def delta(field: str, text: str) -> bytes:
    """What an engine sends, of a few texts again and again."""
    return chunk({field: text})


def pipeline(counted: Counted, tools: bool, thinking: bool, guard: int, field: str) -> Feed:
    """The whole core, a delta at a time as the gateway feeds it; an empty text ends the reply."""
    module = counted("app.stream.pipeline")
    think = counted("app.stream.holdback").ThinkPolicy(thinking, guard)
    declared = counted("app.stream.schema").Tools(TOOLS) if tools else None
    core = module.Pipeline(module.StreamPolicy(think, declared, "t"))
    core.feed(chunk({"role": "assistant", "content": ""}))

    def feed(text: str) -> None:
        if not text:
            core.feed(chunk({}, "stop"))
            core.close()
        elif core.passes(data := delta(field, text)) is None:
            core.feed(data)

    return feed


PIPELINES = [
    Target("speech", partial(pipeline, tools=False, thinking=False, guard=0, field="content"), "Hi. "),
    Target("speech, guarded", partial(pipeline, tools=False, thinking=False, guard=1 << 40, field="content")),
    Target("speech, with tools", partial(pipeline, tools=True, thinking=False, guard=0, field="content"), "Hi.\n"),
    Target("a thought", partial(pipeline, tools=True, thinking=True, guard=1 << 40, field="content"), "<think>"),
    *(
        Target(f"a call in a thought {prefix!r}", partial(pipeline, tools=True, thinking=True, guard=0, field="content"), "<think>" + prefix, 3 * SMALL if "</think>" in prefix else SMALL)
        for prefix in ("{", '<tool_call>{"q":"', '<tool_call>{"q":"</think>', "<function=run>\n<parameter=command>\n</think>")
    ),
    Target("reasoning", partial(pipeline, tools=True, thinking=True, guard=0, field="reasoning"), "Hm. "),
    Target("JSON that may be a call", partial(pipeline, tools=False, thinking=False, guard=0, field="content"), '{"arguments":"'),
    *(
        Target(f"in a call {prefix!r}", partial(pipeline, tools=True, thinking=False, guard=0, field="content"), prefix, 3 * LONGEST_NAME if prefix == "<function=" else SMALL)
        for prefix in ('<tool_call>', "[TOOL_CALLS]", "[TOOL_CALLS]now[ARGS]{", "<tool_calls>[", "<|python_tag|>", "<parameter=q>", "&lt;tool_call&gt;", '<tool_call>{"name":"now","arguments":{"q":"', '<tool_call>{"arguments":', "<function=run>\n<parameter=command>", "<function=", "```\n",
                       '<tool_call>{"name":"now","arguments":{"q":"a"}', "<tool_call>\n<function=run>\n<parameter=command>\n")
    ),
]  # fmt: skip

WHOLE_ONLY = [
    *(Target(f"kind {prefix!r}", kind_of, prefix) for prefix in ("", '"', '{"a":"', "[", "[1", '{"a":')),
    *(Target(f"coerced {prefix!r}", coerced, prefix) for prefix in ("", '{"a":"', "1")),
]


def grows(
    counted: Counted,
    make: Callable[[Counted], Feed],
    text: Callable[[int], Iterator[str]],
    least: int = SMALL,
) -> str:
    """ "" if the work is linear, else the figures."""

    def steps(size: int) -> int:
        feed = make(counted)

        def run() -> None:
            with contextlib.suppress(Exception):  # a fault ends the work
                for piece in text(size):
                    feed(piece)

        return counted.steps(run)

    small, large = steps(least), steps(4 * least)
    return f"{small} steps, then {large}" if large > GROWTH * small + SLACK else ""


def pieces(prefix: str, unit: str, cut: int | None) -> Callable[[int], Iterator[str]]:
    """A text of some size: the prefix and then one unit again and again, in pieces of `cut`."""

    def text(size: int) -> Iterator[str]:
        said = (unit * (size // len(unit) + 1))[:size]
        if prefix:
            yield prefix
        if cut is None:
            yield said
        else:
            yield from (said[at : at + cut] for at in range(0, size, cut))

    return text


@pytest.fixture(scope="module")
def counted() -> Counted:
    return Counted()


@pytest.mark.parametrize("cut", [1, None], ids=["by character", "at once"])
@looped("target", LEAVES, in_groups_of=10)
def test_a_parser_reads_every_character_once(counted: Counted, target: Target, cut: int | None) -> None:
    slow = {}
    for unit in [*CHARACTERS, *WORDS]:
        text = pieces(target.prefix, unit, cut)
        figures = grows(counted, target.make, text)
        if figures and target.later:
            figures = grows(counted, target.make, text, target.later)
        if figures:
            slow[unit] = figures
    assert not slow


@pytest.mark.parametrize("target", WHOLE_ONLY, ids=lambda target: target.name)
def test_a_check_of_a_whole_text_reads_it_a_few_times_at_most(counted: Counted, target: Target) -> None:
    def text(unit: str) -> Callable[[int], Iterator[str]]:
        return lambda size: iter([target.prefix + (unit * size)[:size]])

    units = [*CHARACTERS, *WORDS]
    assert not {u: found for u in units if (found := grows(counted, target.make, text(u)))}


def until_the_end(prefix: str, unit: str, cut: int | None) -> Callable[[int], Iterator[str]]:
    """The same text, and then the end."""
    return lambda size: chain(pieces(prefix, unit, cut)(size), [""])


@pytest.mark.slow  # every step of every writer is counted: 4 s
@looped("target", WRITERS)
def test_what_goes_out_is_written_once(counted: Counted, target: Target) -> None:
    assert not {u: found for u in "a\n" if (found := grows(counted, target.make, until_the_end("", u, 1)))}


@pytest.mark.slow  # every step of the whole core is counted: 2 s a target
@pytest.mark.parametrize("target", PIPELINES, ids=lambda target: target.name)
def test_the_whole_core_does_linear_work(counted: Counted, target: Target) -> None:
    """One character at a time; in the quick run a longer text is fed in as many pieces as the others.

    What is read again is then read again as often, and is longer: quadratic work grows no less. There each target tries
    a third of the units as well, the next target the next third: over all targets every unit is tried.
    """
    cut, share = scaled(target.least // SMALL, 1), scaled(3, 1)
    units = [*'=<>\n `{}"a[\\', *WORDS]
    assert not {
        unit: figures
        for unit in units[PIPELINES.index(target) % share :: share]
        if (figures := grows(counted, target.make, until_the_end(target.prefix, unit, cut), target.least))
    }


def test_a_look_back_in_pieces_is_found_as_well() -> None:
    """By what each target of the whole core is fed: a reader that looks at all it was given again."""

    def rereader(counted: Counted) -> Feed:
        said: list[str] = []

        def feed(text: str) -> None:
            said.append(text)
            counted.counter.steps += 100 + sum(map(len, said))

        return feed

    for least in {target.least for target in PIPELINES}:
        text = until_the_end("", "a", scaled(least // SMALL, 1))
        assert grows(Counted(), rereader, text, least)


LONG = 1200
"""Characters of a long delta, which holds many tags."""
MANY = scaled(LONG // 2, LONG)
"""The same, where only the growth is looked at."""


@pytest.mark.parametrize("target", PIPELINES[1:5], ids=lambda target: target.name)
def test_many_tags_in_one_delta_are_linear_work_too(counted: Counted, target: Target) -> None:
    units = [
        "</",
        "<think>",
        "</think>",
        "<tool_call>{",
        "<tool_call>\n<function=",
        "<function=now>",
        "```\n",
    ]
    assert not {
        unit: figures
        for unit in units
        if (figures := grows(counted, target.make, until_the_end(target.prefix, unit, MANY), 2 * MANY))
    }


BRACKETS = ["{", "[", "[{", "{[", "[[", "a[", "[a", "{a", "{x}", "[f]", "[{}", "now{", "[1]", "\n["]
DEAREST = 80
"""Steps for a character of them; a bracket that is read as the beginning of a call takes hundreds."""


def steps_for_a_character(
    counted: Counted, units: list[str], prefix: str, tools: bool, size: int
) -> dict[str, float]:
    """What the whole core does for each unit that is said again and again, without what a reply costs by itself."""

    def steps(unit: str, size: int) -> int:
        feed = pipeline(counted, tools=tools, thinking=False, guard=0, field="content")
        return counted.steps(lambda: [feed(piece) for piece in until_the_end(prefix, unit, LONG)(size)])

    steps(" a", LONG)  # patterns are compiled once
    fixed = steps(" a", LONG)
    return {unit: (steps(unit, size) - fixed) / size for unit in units}


@pytest.mark.parametrize("tools", [False, True], ids=["without tools", "with tools"])
def test_brackets_that_begin_no_call_are_passed_over_at_once(counted: Counted, tools: bool) -> None:
    figures = steps_for_a_character(counted, BRACKETS, "Hi. ", tools, 2 * LONG)
    assert not {unit: figure for unit, figure in figures.items() if figure > DEAREST}


NAMES = [
    "now is it\n",
    "now\n",
    "now\r\n",
    "  now\n",
    "\nnow",
    "nowx\n",
    "n\n",
    "now: it\n",
    "now[\n",
    "now.\n",
]
VALUES = ["now()x\n", "now {}x\n", "now: {}x\n", "run(x=1) b\n", "now(as ever)\n", "now(\n\n", "now(x\n", "now(((\n", "now(1)\n", "now{\n", "Action\n", "Action: now\n"]  # fmt: skip
DEAREST_NAME, DEAREST_VALUE = 120, 300
"""Steps for a character of them; where a name alone is read as the beginning of a call, it takes some 600."""


@pytest.mark.slow  # every step of the whole core is counted
def test_lines_that_begin_with_a_tools_name_and_are_no_call_cost_little(counted: Counted) -> None:
    for units, dearest in ((NAMES, DEAREST_NAME), (VALUES, DEAREST_VALUE)):
        for size in (2 * LONG, 8 * LONG):
            figures = steps_for_a_character(counted, units, "Hi.\n", True, size)
            assert not {unit: figure for unit, figure in figures.items() if figure > dearest}


def test_many_tools_make_no_name_dearer(counted: Counted) -> None:
    """Which names a text may become is not looked for in all of them."""

    def steps(count: int) -> int:
        tools = counted("app.stream.schema").Tools([{"function": {"name": f"now_{n}"}} for n in range(count)])
        return counted.steps(lambda: [tools.may_become(begun) for begun in ("n", "now_", "x")])

    assert steps(1000) < 2 * steps(10)


def self_references(size: int) -> Any:
    return {"a": {"anyOf": [{"$ref": "#/properties/a"}] * size}}


def reference_chain(size: int) -> Any:
    chain = {f"p{n}": {"$ref": f"#/properties/p{n + 1}"} for n in range(size)}
    return {"a": {"$ref": "#/properties/p0"}, **chain, f"p{size}": {"type": "integer"}}


def references_to_references(size: int) -> Any:
    """Each refers twice to the next: 2 ** size paths."""
    chain = {f"p{n}": {"anyOf": [{"$ref": f"#/properties/p{n + 1}"}] * 2} for n in range(size)}
    return {"a": {"$ref": "#/properties/p0"}, **chain}


def unions_of_unions(size: int) -> Any:
    node: Any = {"type": "integer"}
    for _ in range(size):
        node = {"anyOf": [node, node, {"enum": [1, "a"]}], "oneOf": [node]}
    return {"a": node}


def long_lists(size: int) -> Any:
    return {"a": {"enum": ["x"] * size, "type": ["string"] * size, "required": ["y"] * size}}


def long_pointers(size: int) -> Any:
    return {"a": {"anyOf": [{"$ref": "#" + "/properties" * size}]}}


SCHEMAS = [
    self_references,
    reference_chain,
    references_to_references,
    unions_of_unions,
    long_lists,
    long_pointers,
]


@pytest.mark.parametrize("make", SCHEMAS, ids=lambda make: make.__name__)
def test_each_node_of_a_schema_is_looked_at_once(counted: Counted, make: Callable[[int], Any]) -> None:
    module = counted("app.stream.schema")

    def steps(size: int) -> int:
        function = {"name": "f", "parameters": {"properties": make(size)}}
        tools = module.Tools([{"function": function}])
        return counted.steps(lambda: [tools.types("f", "a") for _ in range(size)])

    assert steps(120) <= GROWTH * steps(30) + SLACK


SHARED = [
    lambda size: {"enum": ["x"] * size},
    lambda size: {"type": ["string"] * size},
    lambda size: {"$ref": "#" + "/properties" * size},
    lambda size: {"anyOf": [{"$ref": "#" + "/properties" * (size // 4)}] * 4},
    lambda size: {"anyOf": [5] * size},
]


@pytest.mark.parametrize("make", SHARED, ids=["enum", "type", "reference", "references", "no schemas"])
def test_what_many_arguments_refer_to_is_looked_at_once(
    counted: Counted, make: Callable[[int], dict[str, Any]]
) -> None:
    """Else a schema as large as a request may be costs milliseconds for each argument that a model writes."""
    module = counted("app.stream.schema")

    def steps(size: int) -> int:
        names = [f"p{n}" for n in range(size)]
        parameters = {"properties": dict.fromkeys(names, {"$ref": "#/shared"}), "shared": make(size)}
        tools = module.Tools([{"function": {"name": "f", "parameters": parameters}}])
        return counted.steps(lambda: [tools.types("f", name) for name in names])

    assert steps(400) <= GROWTH * steps(100) + SLACK


@pytest.mark.parametrize("size", [30, 200_000], ids=["doubling at each level", "wide"])
def test_a_schema_s_size_is_found_without_walking_all_of_it(counted: Counted, size: int) -> None:
    module = counted("app.api.tool_schema")
    budget = module.Budget()
    schema = unions_of_unions(size) if size == 30 else {"enum": ["x"] * size}

    def check() -> None:
        with pytest.raises(module.SchemaTooLarge):
            module.check_schema(schema, budget)

    assert counted.steps(check) < 40 * module.MAX_NODES


@pytest.mark.parametrize("field", ["tool_calls", "usage"])
def test_a_chunk_of_many_parts_is_read_once(counted: Counted, field: str) -> None:
    module = counted("app.stream.chunks")

    def steps(size: int) -> int:
        call = {"index": 0, "function": {"name": "now", "arguments": {"a": 1}}}
        body = {
            "tool_calls": {"choices": [{"index": 0, "delta": {"tool_calls": [call] * size}}]},
            "usage": {"choices": [], "usage": {f"n{n}": {str(m): m for m in range(9)} for n in range(size)}},
        }[field]
        return counted.steps(lambda: module.parse_payload(json.dumps(body).encode()))

    assert steps(800) <= GROWTH * steps(200) + SLACK


def patterns() -> Iterator[tuple[str, str, re.Pattern[Any]]]:
    """Every pattern that a module of the app keeps, with each method of it that is called.

    Not the redactor's: their repeats are bounded by 64 and more, and its own tests feed them longer texts.
    One that is not called by its name (it stands in a table, or in an object) is searched for
    everywhere in the text, which is the hardest.
    """
    for path in sorted(Path("app").rglob("*.py")):
        name, source = ".".join(path.with_suffix("").parts), path.read_text("utf-8")
        if (
            name.startswith("app.shadow.")
            or "__main__" in name
            or "app/stream" not in str(path)
            and "re." not in source
        ):
            continue
        for variable, value in vars(import_module(name)).items():
            if variable in source and (kept := [*_patterns_in(value, 3)]):
                methods = {*re.findall(rf"\b{variable}\.(match|fullmatch|search|sub)\(", source)}
                yield from (
                    (f"{name}.{variable}", how, it) for it in kept for how in sorted(methods) or ["sub"]
                )


def _patterns_in(value: Any, depth: int) -> Iterator[re.Pattern[Any]]:
    if isinstance(value, re.Pattern):
        yield value
    elif depth and isinstance(value, tuple | list | dict | set | frozenset):
        for item in value.values() if isinstance(value, dict) else value:
            yield from _patterns_in(item, depth - 1)
    elif depth and type(value).__module__.startswith("app."):
        yield from _patterns_in(list(getattr(value, "__dict__", {}).values()), depth - 1)


@pytest.mark.parametrize(
    "name, method, pattern", [pytest.param(*p, id=f"{p[0]}.{p[1]} {p[2].pattern[:30]!r}") for p in patterns()]
)
def test_no_pattern_backtracks_over_what_it_has_read(
    name: str, method: str, pattern: re.Pattern[Any]
) -> None:
    source = pattern.pattern if isinstance(pattern.pattern, str) else pattern.pattern.decode("latin-1")
    letters = {*re.sub(r"\\.|[][(){}|^$*+?]", "", source), *CHARACTERS, "0", "A", "é"}
    starts = ["", *re.findall(r"[A-Za-z<:/@-]{2,}", source)][:4]
    units = [*letters, *starts[1:], *WORDS, "a@", "a.", "1-", "http://a?", "a=b&", "\"'", " a"]
    slow = {}
    for start, unit in product(starts, units):
        texts = [start + (unit * size)[:size] for size in scaled((30, 120), (60, 240))]
        small, large = (pattern_steps(pattern, method, text, 200_000) for text in texts)
        if large > GROWTH * small + 500:
            slow[start, unit] = small, large
    assert not slow
