"""`tool_choice`: what a caller asks of tool calls, what an engine is sent for it, and whether the reply kept it. Pure.

    asked                        shown to the model   tool_choice sent         guided
    "none"                       no tool              nothing
    "auto", or nothing           all tools            "auto", or nothing
    "required"                   all tools            "required"                "none", and a schema for the reply
    a tool's name                that one             "required", one call      "none", and a schema

A named tool is sent alone and with a plain word: llama-server takes an object for "auto", and LM Studio refuses one. An engine
without a parser for tool calls (vLLM without `--tool-call-parser`) refuses every word but "none"; the gateway reads its calls
from the text. llama-server allows text before a required call, and a small model never comes to the call. So there the whole
reply is guided by a JSON Schema, `{"name": …, "arguments": …}`, and the gateway makes a call of it, unless the template writes
calls in XML: such a model may be bad at JSON. An engine without a parser is guided only if its template writes XML: under a
grammar, small models do not end their strings. The second request for a reply uses the other way.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

import msgspec

from app.stream.holdback import FILTERED
from deploy.engine.abilities import Abilities
from deploy.engine.dialects import DIALECTS
from gates.contracts.dialect import Dialect
from gates.reply.chunks import UNREADABLE
from gates.reply.events import Broken, CallArguments, CallStart, Event, Finish, Text

NOT_KEPT = "tool_choice_not_kept"

Mode = Literal["none", "auto", "required"]
_CUT = frozenset({"length", "content_filter"})  # finish reasons of a reply that the model did not end
_NO_CALL = "the model called no tool, although tool_choice requires a call"
_NO_ARGUMENTS = {"type": "object", "properties": {}}


class ToolPolicy(msgspec.Struct, frozen=True):
    """mode: calls are forbidden, free or required. name: the tool that must be called; None: any declared one.
    single: at most one call. said: the caller sent `tool_choice`."""

    mode: Mode = "auto"
    name: str | None = None
    single: bool = False
    said: bool = True

    def shows(self, name: str) -> bool:
        """Whether the model is shown this tool."""
        return self.mode != "none" and self.name in (None, name)


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
        fields["response_format"] = {"type": "json_schema", "json_schema": form}
    if "response_format" in fields or not abilities.parses_tools:
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
    calls, schemas = [], {}
    for number, function in enumerate(functions):
        place = f"/$defs/t{number}"
        properties = {"name": {"const": function["name"]}, "arguments": {"$ref": f"#{place}"}}
        shape = {"type": "object", "properties": properties, "required": [*properties]}
        calls.append({**shape, "additionalProperties": False})
        schemas[f"t{number}"] = _moved(function.get("parameters") or _NO_ARGUMENTS, place)
    return {**(calls[0] if len(calls) == 1 else {"anyOf": calls}), "$defs": schemas}


def _moved(schema: Mapping[str, Any], place: str) -> Any:
    """A copy of a schema whose references to itself (`#…`) point to another place."""
    text = msgspec.json.encode(schema)
    return msgspec.json.decode(text.replace(b'"$ref":"#', b'"$ref":"#%b' % place.encode()))


class ToolChoiceEnforcer:
    """Checks a reply against its choice: `feed` events, get those that the caller may see.

    Where a call is required, text waits until one has begun: without a call it is never sent, and the reply ends
    with `NOT_KEPT`. A call of another tool ends it likewise. Calls after a single one are dropped: the model makes
    them again in its next turn. A truncated reply passes with its finish reason.
    """

    sources: tuple[str, ...] = ()  # of the calls made here, as in `CallStart.source`

    def __init__(self, policy: ToolPolicy) -> None:
        self._policy = policy
        self._is_over = False
        self._waiting: list[Text] = []  # text before a required call
        self._calls = 0

    def feed(self, events: Sequence[Event]) -> list[Event]:
        """The events that keep the choice; a Broken where the reply breaks it, and nothing more."""
        return [kept for event in events if not self._is_over for kept in self._keep(event)]

    def _break(self, what: str = _NO_CALL) -> list[Event]:
        self._is_over = True
        return [Broken(f"{what}: ask again, or in other words", NOT_KEPT)]

    def _keep(self, event: Event) -> list[Event]:
        is_needed = self._policy.mode == "required" and not self._calls
        if type(event) is CallStart:
            if not self._policy.shows(event.name):
                return self._break("the model called a tool that tool_choice does not allow")
            self._calls += 1
        if type(event) is CallStart or type(event) is CallArguments:
            before, self._waiting = self._waiting, []
            return [] if self._policy.single and self._calls > 1 else [*before, event]
        if type(event) is Finish and is_needed and (event.reason not in _CUT or self._waiting):
            return self._break()
        if type(event) is Text and is_needed:
            self._waiting.append(event)
            return []
        if type(event) is Broken:
            self._waiting = []
            if event.code == FILTERED and self._policy.mode == "required":
                return self._break()
        return [event]


class _Call(msgspec.Struct):
    name: str
    arguments: msgspec.Raw


class GuidedCall(ToolChoiceEnforcer):
    """Makes a call of a reply that was guided by `call_schema`, once it is whole. A truncated reply has only its finish reason."""

    def __init__(self, policy: ToolPolicy, call_id: str) -> None:
        super().__init__(policy)
        self._call_id = call_id

    def _keep(self, event: Event) -> list[Event]:
        if type(event) is Text:
            self._waiting.append(event)
            return []
        if type(event) is Broken:
            self._waiting.clear()  # the engine may be asked once more
        if type(event) is Finish and event.reason not in _CUT:
            return self._finish(event)
        return [event]

    def _finish(self, event: Finish) -> list[Event]:
        text = "".join(text.text for text in self._waiting).strip()
        fenced = text.removeprefix("```json").removesuffix("```")  # llama.cpp's grammar allows a fence
        try:
            call = msgspec.json.decode(fenced, type=_Call)
        except UNREADABLE:
            return self._break()
        arguments = bytes(call.arguments).decode()
        if not arguments.startswith("{") or not self._policy.shows(call.name):
            return self._break()
        self.sources = ("engine",)
        start = CallStart(event.choice, 0, call.name, self._call_id)
        return [start, CallArguments(event.choice, 0, arguments), Finish(event.choice, "tool_calls")]


def enforcer_for(
    policy: ToolPolicy, dialect: Dialect, abilities: Abilities, call_id: str = ""
) -> ToolChoiceEnforcer | None:
    """The filter of a reply; None if it cannot break the choice. `call_id` is the id of a guided call."""
    if is_guided(policy, dialect, abilities):
        return GuidedCall(policy, call_id)
    can_break = policy.mode == "required" or (policy.mode == "auto" and policy.single)
    return ToolChoiceEnforcer(policy) if can_break else None
