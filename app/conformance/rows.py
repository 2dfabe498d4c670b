"""The rows of the conformance table: what is asked, and what every engine must be heard to do. Pure.

A row is data: some asks, and a judge that takes their replies and raises `Wrong` with the reason.
Prompts are ones that a model of any size knows; nothing here names an engine.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from app.conformance.reply import Call, Reply


class Wrong(Exception):
    """What a caller heard that no caller should hear, or did not hear."""


@dataclass(frozen=True)
class Ask:
    """One request: fields beyond the model, and which of the gateway's two models is asked.

    `aloud` shows its thoughts in `reasoning_content`. `count`: have the engine count the tokens.
    """

    messages: tuple[dict[str, Any], ...]
    fields: dict[str, Any]
    stream: bool
    aloud: bool = False
    count: bool = False


Judge = Callable[[Sequence[Reply]], None]


@dataclass(frozen=True)
class Row:
    """One row. `together`: the asks are sent at the same time, not one after another."""

    name: str
    asks: tuple[Ask, ...]
    judge: Judge
    together: bool = False


def need(true: object, otherwise: str) -> None:
    """Raises Wrong unless it is so."""
    if not true:
        raise Wrong(otherwise)


def user(text: str) -> dict[str, Any]:
    """A user's turn."""
    return {"role": "user", "content": text}


def tool(name: str, description: str, **properties: str) -> dict[str, Any]:
    """A tool whose parameters are all required; `properties` maps names to JSON types."""
    typed = {key: {"type": kind} for key, kind in properties.items()}
    parameters = {"type": "object", "properties": typed, "required": list(typed)}
    function = {"name": name, "description": description, "parameters": parameters}
    return {"type": "function", "function": function}


MEMORY = tool("search_memory", "Search what the user told you before.", query="string")
WEB = tool("web_search", "Search the web for current facts.", query="string")
LIGHT = tool("set_light", "Turn a light on or off.", on="boolean", room="string")
TIMER = tool("set_timer", "Set a timer.", minutes="integer")

HELLO, FRANCE, SUM = user("Hello!"), user("What is the capital of France?"), user("What is 12 plus 25?")
PRIYA = user("What did Priya say about the trip?")
BOTH = user("Turn on the kitchen light, and set a timer for 10 minutes")

ON: dict[str, Any] = {"chat_template_kwargs": {"enable_thinking": True}}
TAGS = re.compile(r"</?think|</?tool_call|<function=|</?parameter")


def ask(*messages: dict[str, Any], stream: bool = True, aloud: bool = False, **fields: Any) -> Ask:
    """An ask with the usual fields: greedy, and bounded."""
    return Ask(messages, {"temperature": 0, "max_tokens": 200, **fields}, stream, aloud)


def both(
    *messages: dict[str, Any], aloud: bool = False, count: bool = False, **fields: Any
) -> tuple[Ask, ...]:
    """The same, streamed and whole."""
    body = {"temperature": 0, "max_tokens": 200, **fields}
    usage = {"stream_options": {"include_usage": True}}
    return (
        Ask(messages, {**body, **usage}, True, aloud, count),
        Ask(messages, body, False, aloud, count),
    )


def clean(reply: Reply, finish: str) -> None:
    """A reply that ended well, and in which no tag was heard."""
    need(reply.error is None, f"an error: {reply.status} {(reply.error or {}).get('message')}")
    need(not reply.faults, "; ".join(reply.faults))
    need(reply.done, "no [DONE]")
    need(reply.finish == finish, f"finish_reason is {reply.finish}, not {finish}")
    need(not TAGS.search(reply.content), f"a tag is heard: {reply.content!r}")
    need(not TAGS.search(reply.thought), f"a tag in the thought: {reply.thought!r}")


def spoken(reply: Reply, *words: str) -> None:
    """A clean answer with these words in it, and no thought."""
    clean(reply, "stop")
    need(reply.content.strip(), "nothing is said")
    need(not reply.thought, f"a thought is heard: {reply.thought!r}")
    need(reply.content == reply.content.lstrip(), "the answer begins with white space")
    need(not reply.calls, f"calls: {reply.calls}")
    for word in words:
        need(word in reply.content, f"no {word!r} in {reply.content!r}")


def alike(replies: Sequence[Reply]) -> None:
    """Streamed and whole say the same: the model is greedy."""
    first, *others = [
        (r.content, r.thought, [(c.name, c.values) for c in r.calls], r.finish) for r in replies
    ]
    for other in others:
        need(other == first, f"not the same twice: {first} and {other}")


def called(reply: Reply, *wanted: tuple[str, Callable[[Any], bool]], finish: str = "tool_calls") -> None:
    """Exactly these calls, whose arguments are JSON, and no text."""
    clean(reply, finish)
    need(not reply.content, f"text beside the calls: {reply.content!r}")
    need([c.name for c in reply.calls] == [name for name, _ in wanted], f"the calls are {reply.calls}")
    for call, (_, right) in zip(reply.calls, wanted, strict=True):
        need(isinstance(call.values, dict) and right(call.values), f"wrong arguments: {call.arguments}")
    ids = {c.id for c in reply.calls}
    need(len(ids) == len(reply.calls) and all(ids), f"ids are not distinct: {ids}")


def about_priya(values: dict[str, Any]) -> bool:
    """A query that asks for her."""
    return "Priya" in str(values.get("query"))


def is_light(values: dict[str, Any]) -> bool:
    """A real boolean, and a string."""
    return values.get("on") is True and values.get("room") == "kitchen"


def is_ten(values: dict[str, Any]) -> bool:
    """A real integer."""
    return values.get("minutes") == 10 and not isinstance(values["minutes"], bool | str)


def each(judge: Callable[[Reply], None], *, same: bool = True) -> Judge:
    """Every reply by itself; and then that they agree."""

    def judged(replies: Sequence[Reply]) -> None:
        for reply in replies:
            judge(reply)
        if same:
            alike(replies)

    return judged


def turn_with(call: Call, result: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """The assistant's turn with this call, and the tool's result."""
    function = {"name": call.name, "arguments": call.arguments}
    asked = {"id": call.id, "type": "function", "function": function}
    return (
        {"role": "assistant", "content": None, "tool_calls": [asked]},
        {"role": "tool", "tool_call_id": call.id, "content": result},
    )
