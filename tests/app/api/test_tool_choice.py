"""`tool_choice`: what is read of it, what engines are sent, and what of a reply passes."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from app.api.chat_request import check_chat
from app.api.engine_request import AskedEngine, stream_policy, upstream_body
from app.api.tool_choice import (
    NOT_KEPT,
    GuidedCall,
    ToolChoiceEnforcer,
    ToolPolicy,
    call_schema,
    enforcer_for,
)
from deploy.engine.abilities import Abilities
from gates.contracts.dialect import Dialect
from gates.reply.events import Broken, CallArguments, CallStart, Done, Event, Finish, Text, Thought, Usage
from tests.app.house import HELLO

NAMES = ("find", "play", "stop")


def tool(name: str) -> dict[str, Any]:
    """A declared tool."""
    parameters = {"type": "object", "properties": {"what": {"type": "string"}}, "required": ["what"]}
    return {"type": "function", "function": {"name": name, "parameters": parameters}}


TOOLS = [tool(name) for name in NAMES]


def named(name: str) -> dict[str, Any]:
    """The choice of one tool."""
    return {"type": "function", "function": {"name": name}}


def asked(**fields: Any) -> dict[str, Any]:
    """A request with three tools."""
    return {"model": "annie", "messages": HELLO, "tools": TOOLS, **fields}


# choice, parallel_tool_calls, tools that the model is told of, tool_choice and parallel_tool_calls as sent
SENT: list[tuple[Any, bool | None, tuple[str, ...], str | None, bool | None]] = [
    (None, None, NAMES, None, None),
    (None, True, NAMES, None, True),
    (None, False, NAMES, None, False),
    ("auto", None, NAMES, "auto", None),
    ("auto", False, NAMES, "auto", False),
    ("required", None, NAMES, "required", None),
    ("required", False, NAMES, "required", False),
    ("none", None, (), None, None),
    ("none", False, (), None, None),
    (named("play"), None, ("play",), "required", False),
    (named("play"), True, ("play",), "required", False),
]


RAW, RAW_XML = Abilities(parses_tools=False), Abilities(parses_tools=False, calls="xml")
ENGINES: dict[str, tuple[Dialect, Abilities]] = {
    "vllm": ("vllm", Abilities()), "llama-server": ("llama-server", Abilities()), "openai": ("openai", Abilities()),
    "vllm without a parser": ("vllm", RAW), "vllm without a parser, XML": ("vllm", RAW_XML),
    "llama-server, XML": ("llama-server", Abilities(calls="xml")),
}  # fmt: skip


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(("choice", "parallel", "shown", "word", "several"), SENT)
def test_a_choice_is_told_in_plain_words_and_by_the_tools_that_are_shown(
    engine: str,
    choice: Any,
    parallel: bool | None,
    shown: tuple[str, ...],
    word: str | None,
    several: bool | None,
) -> None:
    """Where words do not bind the engine, a required call is the schema of the reply."""
    dialect, abilities = ENGINES[engine]
    body = asked(tool_choice=choice, parallel_tool_calls=parallel)
    request = check_chat(body)
    sent = json.loads(upstream_body(request, body, AskedEngine(dialect, "m", abilities)))
    assert tuple(tool["function"]["name"] for tool in sent.get("tools", ())) == shown
    guided = word == "required" and engine in ("llama-server", "vllm without a parser, XML")
    if guided or not abilities.parses_tools:
        word, several = "none" if shown else None, None
    assert (sent.get("tool_choice"), sent.get("parallel_tool_calls")) == (word, several)
    assert ("response_format" in sent) == guided
    tools = stream_policy(request, AskedEngine(dialect, "m", abilities), "").tools
    assert (tools is None) == (not shown or guided)
    assert tools is None or tuple(name for name in NAMES if name in tools) == shown
    keeper = enforcer_for(request.choice, dialect, abilities)
    assert isinstance(keeper, GuidedCall) == guided
    assert (keeper is None) == (
        choice in (None, "auto", "none") and (parallel is not False or choice == "none")
    )


def fits(schema: Any, call: Any) -> bool:
    """Whether a reply is one that the schema lets an engine write."""
    return not list(Draft202012Validator(schema).iter_errors(call))


LEAF: dict[str, Any] = {
    "type": "object",
    "properties": {"child": {"anyOf": [{"$ref": "#"}, {"type": "null"}]}, "size": {"$ref": "#/$defs/Size"}},
    "required": ["size"],
    "$defs": {"Size": {"enum": ["small", "large"]}},
}


def test_references_of_a_tools_schema_stay_in_it() -> None:
    """As pydantic makes them: `$defs` with names that two tools may share, and a schema that holds itself."""
    other = {
        "type": "object",
        "properties": {"size": {"$ref": "#/$defs/Size"}},
        "$defs": {"Size": {"type": "integer"}},
    }
    schema = call_schema([{"name": "a", "parameters": LEAF}, {"name": "b", "parameters": other}])
    assert fits(
        schema, {"name": "a", "arguments": {"size": "small", "child": {"size": "large", "child": None}}}
    )
    assert not fits(schema, {"name": "a", "arguments": {"size": 1}})
    assert not fits(schema, {"name": "a", "arguments": {"size": "small", "child": {"size": 1}}})
    assert fits(schema, {"name": "b", "arguments": {"size": 1}})
    assert not fits(schema, {"name": "b", "arguments": {"size": "small"}})


# What of a reply passes.

START, ARGUMENTS = CallStart(0, 0, "play", "a"), CallArguments(0, 0, "{}")
SECOND = (CallStart(0, 1, "stop", "b"), CallArguments(0, 1, "{}"))
END: tuple[Event, ...] = (Finish(0, "tool_calls"), Usage({}), Done())
STOP: tuple[Event, ...] = (Finish(0, "stop"), Usage({}), Done())
CALL: tuple[Event, ...] = (START, ARGUMENTS)
REQUIRED, ONE = ToolPolicy("required"), ToolPolicy("auto", single=True)
PLAY = ToolPolicy("required", "play", single=True)
SOME = ToolPolicy("required", "play")

KEPT: dict[str, tuple[ToolPolicy, tuple[Event, ...], tuple[Event, ...]]] = {
    # choice, reply, what of it passes
    "a call": (REQUIRED, (*CALL, *END), (*CALL, *END)),
    "two calls": (REQUIRED, (*CALL, *SECOND, *END), (*CALL, *SECOND, *END)),
    "words before a call": (REQUIRED, (Text(0, "Well."), *CALL, *END), (Text(0, "Well."), *CALL, *END)),
    "a thought before a call": (REQUIRED, (Thought(0, "Hm."), *CALL, *END), (Thought(0, "Hm."), *CALL, *END)),
    "a reply that was cut before its call": (REQUIRED, (Finish(0, "length"), Done()), (Finish(0, "length"), Done())),
    "a reply that was filtered": (REQUIRED, (Finish(0, "content_filter"),), (Finish(0, "content_filter"),)),
    "one call of two": (ONE, (*CALL, *SECOND, *END), (*CALL, *END)),
    "one call of three, and words between": (ONE, (*CALL, *SECOND, Text(0, "So."), *SECOND, *END), (*CALL, Text(0, "So."), *END)),
    "no call where none is required": (ONE, (Text(0, "No."), *STOP), (Text(0, "No."), *STOP)),
    "the named call": (PLAY, (*CALL, *END), (*CALL, *END)),
    "the named call twice": (PLAY, (*CALL, CallStart(0, 1, "play", "b"), *END), (*CALL, *END)),
    "an engine's fault in front of a call": (REQUIRED, (Text(0, "Well."), Broken("gone", "x")), (Broken("gone", "x"),)),
}  # fmt: skip


@pytest.mark.parametrize(("choice", "reply", "passes"), KEPT.values(), ids=KEPT)
def test_a_reply_that_keeps_the_choice_passes(
    choice: ToolPolicy, reply: tuple[Event, ...], passes: tuple[Event, ...]
) -> None:
    assert ToolChoiceEnforcer(choice).feed(reply) == [*passes]


BROKEN: dict[str, tuple[ToolPolicy, tuple[Event, ...], int]] = {
    # choice, reply, how many of its events pass
    "words only": (REQUIRED, (Text(0, "No."), *STOP), 0),
    "words that were cut": (REQUIRED, (Text(0, "No, be"), Finish(0, "length"), Done()), 0),
    "a thought only": (REQUIRED, (Thought(0, "Hm."), *STOP), 1),
    "another call than the named one": (PLAY, (*SECOND, *END), 0),
    "another call behind an allowed one": (SOME, (*CALL, *SECOND, *END), 2),
    "nothing but calls that are left out": (REQUIRED, (Broken("nothing is left", "reply_fully_filtered"),), 0),
}  # fmt: skip


@pytest.mark.parametrize(("choice", "reply", "passing"), BROKEN.values(), ids=BROKEN)
def test_a_reply_that_breaks_the_choice_ends_there(
    choice: ToolPolicy, reply: tuple[Event, ...], passing: int
) -> None:
    kept = ToolChoiceEnforcer(choice).feed(reply)
    *before, last = kept
    assert before == [*reply[:passing]]
    assert isinstance(last, Broken) and last.code == NOT_KEPT


GUIDED: dict[str, tuple[str, str | None]] = {
    # the reply, and the arguments of the call
    "a call": ('{"name": "play", "arguments": {"what": "x"}}', '{"what": "x"}'),
    "a call in a fence": ('```json\n{"name": "play", "arguments": {}}\n```', "{}"),
    "a call with room around it": ('\n {"name": "play", "arguments": {}} \n', "{}"),
    "another call": ('{"name": "stop", "arguments": {}}', None),
    "words": ("I would rather talk.", None),
    "arguments that are none": ('{"name": "play", "arguments": [1]}', None),
    "deep nesting": ('{"name": "play", "arguments": ' + '{"a":' * 5000 + "1" + "}" * 5001, None),
}  # fmt: skip


@pytest.mark.parametrize("cut", [0, 1, 9, 10**6])
@pytest.mark.parametrize(("said", "arguments"), GUIDED.values(), ids=GUIDED)
def test_a_reply_that_was_held_to_the_schema_becomes_its_call(
    said: str, arguments: str | None, cut: int
) -> None:
    pieces = [Text(0, piece) for piece in (said[:cut], said[cut:]) if piece]
    keeper = GuidedCall(PLAY, "call_1")
    made = keeper.feed([*pieces, *STOP])
    if arguments is None:
        (only,) = made
        assert isinstance(only, Broken) and only.code == NOT_KEPT and keeper.sources == ()
        return
    call = (CallStart(0, 0, "play", "call_1"), CallArguments(0, 0, arguments))
    assert made == [*call, *END] and keeper.sources == ("engine",)


@pytest.mark.parametrize("keeper", [ToolChoiceEnforcer(PLAY), GuidedCall(PLAY, "c")])
def test_nothing_of_a_reply_that_broke_off_is_left_for_the_next(
    keeper: ToolChoiceEnforcer | GuidedCall,
) -> None:
    """An engine may be asked once more within one exchange."""
    assert keeper.feed([Text(0, '{"name": "pl'), Broken("gone", "x")]) == [Broken("gone", "x")]
    if isinstance(keeper, GuidedCall):
        assert len(keeper.feed([Text(0, '{"name": "play", "arguments": {}}'), *STOP])) == 5
    else:
        assert keeper.feed([*CALL, *END]) == [*CALL, *END]


def test_a_guided_reply_that_was_cut_says_so_and_no_more() -> None:
    cut = (Finish(0, "length"), Usage({}), Done())
    assert GuidedCall(PLAY, "c").feed([Text(0, '{"name": "pl'), *cut]) == [*cut]


_EVENTS = st.one_of(
    st.builds(Text, st.just(0), st.text(max_size=3)),
    st.builds(Thought, st.just(0), st.text(max_size=3)),
    st.builds(CallStart, st.just(0), st.integers(0, 3), st.sampled_from(NAMES)),
    st.builds(CallArguments, st.just(0), st.integers(0, 3), st.just("{}")),
    st.builds(Finish, st.just(0), st.sampled_from(["stop", "tool_calls", "length"])),
)
_CHOICES = st.builds(
    ToolPolicy,
    st.sampled_from(["auto", "required"]),
    st.sampled_from([None, *NAMES]),
    st.booleans(),
)


@given(_CHOICES, st.lists(_EVENTS, max_size=8), st.integers(0, 8))
def test_what_passes_keeps_the_choice_on_any_cut_of_the_reply(
    choice: ToolPolicy, reply: list[Event], cut: int
) -> None:
    whole, pieces = ToolChoiceEnforcer(choice).feed(reply), ToolChoiceEnforcer(choice)
    assert [*pieces.feed(reply[:cut]), *pieces.feed(reply[cut:])] == whole
    calls = [event.name for event in whole if isinstance(event, CallStart)]
    assert all(choice.shows(name) for name in calls)
    assert not choice.single or len(calls) <= 1
    ended = any(isinstance(event, Finish) and event.reason == "stop" for event in whole[:1])
    assert not (choice.mode == "required" and ended)
