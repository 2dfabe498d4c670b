"""`tool_choice`: what a caller asks of tool calls, what an engine is sent for it, and whether the reply kept it. Pure.

    asked                        shown to the model   tool_choice sent         guided
    "none"                       no tool              nothing
    "auto", or nothing           all tools            "auto", or nothing
    "required"                   all tools            "required"                "none", and a schema for the reply
    a tool's name                that one             "required", one call      "none", and a schema
    allowed tools, "auto"        those                "auto"
    allowed tools, "required"    those                "required"                "none", and a schema

A model cannot call a tool that it is not shown, so a choice among tools is sent as these tools alone and a plain word:
llama-server takes an object for "auto", and LM Studio refuses one. An engine without a parser for tool calls (vLLM without
`--tool-call-parser`) refuses every word but "none"; the gateway reads its calls from the text. llama-server allows text
before a required call, and a small model never comes to the call. So there the whole reply is guided by a JSON Schema,
`{"name": …, "arguments": …}`, and the gateway makes a call of it, unless the template writes calls in XML: such a model may be
bad at JSON. An engine without a parser is guided only if its template writes XML: under a grammar, small models do not end
their strings. The second request for a reply uses the other way.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal, cast

import msgspec

from app.errors.tree import BadField, ChoiceNotKept
from app.stream.holdback import FILTERED
from deploy.engine.abilities import Abilities
from deploy.engine.dialects import DIALECTS
from gates.contracts.dialect import Dialect
from gates.reply.chunks import UNREADABLE
from gates.reply.events import Broken, CallArguments, CallStart, Event, Finish, Text

NOT_KEPT = ChoiceNotKept.code

Mode = Literal["none", "auto", "required"]
_MODES = ("none", "auto", "required")
MAX_PREAMBLE = 2000
"""Most characters of text before a required call; a model that writes more will not call."""
_CUT = frozenset({"length", "content_filter"})
"""Finish reasons of a reply that the model did not end."""


class ToolPolicy(msgspec.Struct, frozen=True):
    """mode: calls are forbidden, free or required. names: the tools that may be called; None: all declared.
    single: at most one call. said: the caller sent `tool_choice`."""

    mode: Mode = "auto"
    names: frozenset[str] | None = None
    single: bool = False
    said: bool = True

    @property
    def binds(self) -> bool:
        """Whether a reply can break it."""
        return self.mode == "required" or (self.mode == "auto" and (self.names is not None or self.single))

    def shows(self, name: str) -> bool:
        """Whether the model is shown this tool."""
        return self.mode != "none" and (self.names is None or name in self.names)


_FREE = ToolPolicy(said=False)
_WITHOUT_TOOLS = ToolPolicy("none", said=False)


def read_choice(choice: Any, declared: Sequence[str], parallel: bool | None) -> ToolPolicy:
    """The choice of a chat request with these tools. Raises BadField, about `tool_choice`."""
    single = parallel is False
    if choice is None:
        if single:
            return ToolPolicy("auto" if declared else "none", None, single, said=False)
        return _FREE if declared else _WITHOUT_TOOLS
    if isinstance(choice, str) and choice not in _MODES:
        raise _bad(f"must be one of {', '.join(_MODES)}, a function or allowed_tools, not {choice[:40]!r}")
    if not declared:
        if choice in ("none", "auto"):
            return ToolPolicy("none", None, single)
        raise BadField("tool_choice needs tools", param="tool_choice")
    if isinstance(choice, str):
        return ToolPolicy(cast(Mode, choice), None, single)
    kind = choice.get("type")
    if kind == "function":
        return ToolPolicy("required", frozenset([_name(choice, declared)]), single=True)
    if kind == "allowed_tools":
        return _allowed(choice.get("allowed_tools"), declared, single)
    raise _bad(f"type {str(kind)[:40]!r} is not served, only function and allowed_tools")


def _allowed(allowed: Any, declared: Sequence[str], single: bool) -> ToolPolicy:
    given = allowed if isinstance(allowed, dict) else {}
    mode, tools = given.get("mode"), given.get("tools")
    if mode not in ("auto", "required"):
        raise _bad("allowed_tools.mode must be auto or required")
    if not isinstance(tools, list) or not tools:
        raise _bad("allowed_tools.tools must name at least one tool")
    known = frozenset(declared)
    names = frozenset(_name(tool if isinstance(tool, dict) else {}, known) for tool in tools)
    return ToolPolicy(mode, names, single)


def _name(tool: Mapping[str, Any], declared: Sequence[str] | frozenset[str]) -> str:
    if tool.get("type") != "function":
        raise _bad("only tools of type function can be chosen")
    function = tool.get("function")
    name = function.get("name") if isinstance(function, dict) else None
    if not isinstance(name, str):
        raise _bad("a function needs its name, as function.name")
    if name not in declared:
        raise _bad(f"names {name[:128]!r}, which tools does not declare")
    return name


def _bad(why: str) -> BadField:
    return BadField(f"tool_choice: {why}", param="tool_choice")


# The request to an engine.


def is_guided(policy: ToolPolicy, dialect: Dialect, abilities: Abilities) -> bool:
    """Whether a schema guides the reply: it is the JSON of one call, and GuidedCall makes a call of it."""
    if policy.mode != "required":
        return False
    if not DIALECTS[dialect].forces_calls:
        return abilities.calls != "xml"
    return not abilities.parses_tools and abilities.calls == "xml"


def other_means(abilities: Abilities) -> Abilities:
    """The abilities that turn `is_guided` into its opposite, where there are two ways."""
    return replace(abilities, calls="hermes" if abilities.calls == "xml" else "xml")


def tool_fields(
    policy: ToolPolicy, body: Mapping[str, Any], dialect: Dialect, abilities: Abilities
) -> dict[str, Any]:
    """The fields about tools for an engine; {} without tools: vLLM answers 400 to an empty list, OpenAI to the other fields."""
    shown = [tool for tool in body.get("tools") or () if policy.shows(tool["function"]["name"])]
    if not shown:
        return {}
    fields: dict[str, Any] = {"tools": shown}
    if is_guided(policy, dialect, abilities):
        form = {"name": "call", "schema": call_schema([tool["function"] for tool in shown]), "strict": True}
        return fields | {
            "tool_choice": "none",
            "response_format": {"type": "json_schema", "json_schema": form},
        }
    if not abilities.parses_tools:
        return {**fields, "tool_choice": "none"}
    if policy.said:
        fields["tool_choice"] = policy.mode
    if policy.single:
        fields["parallel_tool_calls"] = False
    elif body.get("parallel_tool_calls") is not None:
        fields["parallel_tool_calls"] = body["parallel_tool_calls"]
    return fields


def call_schema(functions: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The JSON Schema of one call of one of these functions.

    A reference points into its own tool's schema, which is therefore put whole under `$defs`.
    """
    calls, definitions = [], {}
    for number, function in enumerate(functions):
        arguments = function.get("parameters") or {"type": "object", "properties": {}}
        place = f"#/$defs/t{number}"
        moved, has_references = _moved(arguments, place)
        if has_references:
            definitions[f"t{number}"] = moved
            arguments = {"$ref": place}
        properties = {"name": {"const": function["name"]}, "arguments": arguments}
        calls.append(
            {
                "type": "object",
                "properties": properties,
                "required": ["name", "arguments"],
                "additionalProperties": False,
            }
        )
    form = calls[0] if len(calls) == 1 else {"anyOf": calls}
    return {**form, "$defs": definitions} if definitions else form


def _moved(value: Any, place: str) -> tuple[Any, bool]:
    """A copy of a schema whose references to itself (`#…`) point to another place; whether it has any."""
    if isinstance(value, list):
        parts = [_moved(one, place) for one in value]
        return [part for part, _ in parts], any(found for _, found in parts)
    if not isinstance(value, dict):
        return value, False
    reference = value.get("$ref")
    if isinstance(reference, str) and reference.startswith("#"):
        return {**value, "$ref": place + reference[1:]}, True
    pairs = {key: _moved(one, place) for key, one in value.items()}
    return {key: part for key, (part, _) in pairs.items()}, any(found for _, found in pairs.values())


# The reply.


class _Filter:
    """`feed` events, get those that the caller may see; `sources` of the calls made here, as in `CallStart.source`."""

    def __init__(self, policy: ToolPolicy) -> None:
        self._policy = policy
        self._broken = False
        self.sources: tuple[str, ...] = ()

    def feed(self, events: Sequence[Event]) -> list[Event]:
        """The events that keep the choice; a Broken where the reply breaks it, and nothing more."""
        return [kept for event in events if not self._broken for kept in self._keep(event)]

    def _keep(self, event: Event) -> list[Event]:
        raise NotImplementedError

    def _break(self, what: str) -> list[Event]:
        self._broken = True
        return [Broken(f"{what}: ask again, or in other words", NOT_KEPT)]


class ToolChoiceEnforcer(_Filter):
    """Checks a reply against its choice.

    Where a call is required, text waits until one has begun: without a call it is never sent, and the reply ends
    with `NOT_KEPT`. A call of another tool ends it likewise. Calls after a single one are dropped: the model makes
    them again in its next turn. A truncated reply passes with its finish reason.
    """

    def __init__(self, policy: ToolPolicy) -> None:
        super().__init__(policy)
        self._waiting: list[Event] = []  # text before a required call
        self._preamble = 0  # its characters
        self._calls = 0

    def _keep(self, event: Event) -> list[Event]:
        if type(event) is CallStart:
            return self._call(event)
        if type(event) is CallArguments:
            return [] if self._is_surplus else [event]
        if type(event) is Finish:
            return self._finish(event)
        if type(event) is Text and self._policy.mode == "required" and not self._calls:
            self._waiting.append(event)
            self._preamble += len(event.text)
            is_long = self._preamble > MAX_PREAMBLE
            return self._break("the model speaks, although tool_choice requires a call") if is_long else []
        if type(event) is Broken:
            return self._broke(event)
        return [event]

    def _broke(self, event: Broken) -> list[Event]:
        self._waiting.clear()
        self._preamble = 0
        if event.code == FILTERED and self._policy.mode == "required":
            return self._break("the model called no tool that tool_choice allows")
        return [event]

    @property
    def _is_surplus(self) -> bool:
        """Whether the current call is one too many."""
        return self._policy.single and self._calls > 1

    def _call(self, event: CallStart) -> list[Event]:
        if not self._policy.shows(event.name):
            return self._break("the model called a tool that tool_choice does not allow")
        self._calls += 1
        if self._is_surplus:
            return []
        before, self._waiting = self._waiting, []
        return [*before, event]

    def _finish(self, event: Finish) -> list[Event]:
        is_cut = event.reason in _CUT and not self._waiting
        if self._policy.mode == "required" and not self._calls and not is_cut:
            return self._break("the model called no tool, although tool_choice requires a call")
        return [event]


class _Call(msgspec.Struct):
    name: str
    arguments: msgspec.Raw


class GuidedCall(_Filter):
    """Makes a call of a reply that was guided by `call_schema`, once it is whole. A truncated reply has only its finish reason."""

    def __init__(self, policy: ToolPolicy, call_id: str) -> None:
        super().__init__(policy)
        self._call_id = call_id
        self._text: list[str] = []

    def _keep(self, event: Event) -> list[Event]:
        if type(event) is Text:
            self._text.append(event.text)
            return []
        if type(event) is Broken:
            self._text.clear()  # the engine may be asked once more
        if type(event) is Finish and event.reason not in _CUT:
            return self._finish(event)
        return [event]

    def _finish(self, event: Finish) -> list[Event]:
        call = self._read()
        if call is None or not self._policy.shows(call.name):
            return self._break("the model called no tool, although tool_choice requires a call")
        self.sources = ("engine",)
        arguments = bytes(call.arguments).decode()
        start = CallStart(event.choice, 0, call.name, self._call_id)
        return [start, CallArguments(event.choice, 0, arguments), Finish(event.choice, "tool_calls")]

    def _read(self) -> _Call | None:
        text = "".join(self._text).strip()
        fenced = text.removeprefix("```json").removesuffix("```")  # llama.cpp's grammar allows a fence
        try:
            call = msgspec.json.decode(fenced, type=_Call)
        except UNREADABLE:
            return None
        return call if bytes(call.arguments).startswith(b"{") else None


def enforcer_for(
    policy: ToolPolicy, dialect: Dialect, abilities: Abilities, call_id: str = ""
) -> ToolChoiceEnforcer | GuidedCall | None:
    """The filter of a reply; None if it cannot break the choice. `call_id` is the id of a guided call."""
    if is_guided(policy, dialect, abilities):
        return GuidedCall(policy, call_id)
    return ToolChoiceEnforcer(policy) if policy.binds else None
