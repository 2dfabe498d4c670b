"""The checks of the conformance suite: requests, and what the replies of every engine must look like. Pure.

A check is data: some requests, and a judge that takes their replies and raises `CheckFailed` with the reason.
The prompts are simple enough for a model of any size, and nothing here depends on one engine.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from app.conformance.reply import ObservedReply
from gates.contracts import markers
from gates.detect.toolcall import read_arguments
from gates.reply.reply import ReplyCall


class CheckFailed(Exception):
    """A reply does not meet a requirement; the message names it."""


class ModelLacks(CheckFailed):
    """The model does not do what the check asks it for, so that the engine's part cannot be seen."""


@dataclass(frozen=True)
class CheckRequest:
    """One request: its fields beyond the model, and which of the gateway's two models it is for.

    The model `with_reasoning` shows its thoughts in `reasoning_content`. `count`: have the engine count the reply's tokens.
    """

    messages: tuple[dict[str, Any], ...]
    fields: dict[str, Any]
    stream: bool
    with_reasoning: bool = False
    count: bool = False


Judge = Callable[[Sequence[ObservedReply]], None]


@dataclass(frozen=True)
class Check:
    """One check. `together`: its requests are sent concurrently, not one after another. `after`: the check of what it needs the
    model to do."""

    name: str
    asks: tuple[CheckRequest, ...]
    judge: Judge
    together: bool = False
    after: str = ""


def require(true: object, otherwise: str) -> None:
    """Raises CheckFailed(otherwise) unless `true` is truthy."""
    if not true:
        raise CheckFailed(otherwise)


def expect(true: object, otherwise: str) -> None:
    """Raises ModelLacks(otherwise) unless `true` is truthy."""
    if not true:
        raise ModelLacks(otherwise)


def user(text: str) -> dict[str, Any]:
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

TYPES: dict[str, dict[str, type]] = {
    "search_memory": {"query": str}, "web_search": {"query": str},
    "set_light": {"on": bool, "room": str}, "set_timer": {"minutes": int},
}  # fmt: skip
"""The arguments of each tool."""

HELLO, FRANCE, SUM = user("Hello!"), user("What is the capital of France?"), user("What is 4 plus 5?")
PRIYA = user("What did Priya say about the trip?")
BOTH = user("Turn on the kitchen light, and set a timer for 10 minutes")

ON: dict[str, Any] = {"chat_template_kwargs": {"enable_thinking": True}}
MOST = 128
"""Tokens of a reply: more than an answer takes, and few for a model that never ends one."""
THINKING = "thinking on"
NO_THOUGHT = "it does not think when asked to"


def ask(
    *messages: dict[str, Any],
    stream: bool = True,
    with_reasoning: bool = False,
    count: bool = False,
    **fields: Any,
) -> CheckRequest:
    """A request with the usual fields: greedy, at most MOST tokens."""
    body = {"temperature": 0, "max_tokens": MOST, **fields}
    return CheckRequest(messages, body, stream, with_reasoning, count)


def both(*messages: dict[str, Any], **settings: Any) -> tuple[CheckRequest, ...]:
    """The same request twice: streamed, with its usage, and whole."""
    usage = {"include_usage": True}
    return ask(*messages, stream_options=usage, **settings), ask(*messages, stream=False, **settings)


def check_ended(reply: ObservedReply, finish: str) -> None:
    """The reply ended as expected, by the protocol."""
    require(reply.error is None, f"an error: {reply.status} {reply.error}")
    require(not reply.faults, "; ".join(reply.faults))
    require(reply.done, "no [DONE]")
    expect(finish == "length" or reply.finish_reason != "length", "it does not come to an end")
    require(reply.finish_reason == finish, f"finish_reason is {reply.finish_reason}, not {finish}")


def check_clean(reply: ObservedReply, finish: str) -> None:
    """The reply ended as expected, and holds no markup of thoughts or calls."""
    check_ended(reply, finish)
    require(not any(markers.find(reply.content)), f"the content holds a tag: {reply.content!r}")
    require(not any(markers.find(reply.reasoning)), f"the reasoning holds a tag: {reply.reasoning!r}")


def check_answered(reply: ObservedReply) -> None:
    """A clean answer, with or without reasoning before it."""
    check_clean(reply, "stop")
    require(reply.content.strip(), "no answer")
    require(reply.content == reply.content.lstrip(), "the answer begins with white space")


def check_spoken(reply: ObservedReply, *words: str) -> None:
    """A clean answer that contains these words, without a thought or a call."""
    expect(not reply.calls, f"it makes a call that is not needed: {reply.calls}")
    check_answered(reply)
    require(not reply.reasoning, f"there is reasoning: {reply.reasoning!r}")
    for word in words:
        expect(word in reply.content, f"no {word!r} in {reply.content!r}")


def check_said(reply: ObservedReply, finish: str, has: str = "", lacks: str = "") -> None:
    """A clean reply that holds one text and not the other."""
    check_clean(reply, finish)
    expect(has in reply.content, f"no {has!r} in {reply.content!r}")
    require(not lacks or lacks not in reply.content, f"{lacks!r} in {reply.content!r}")


def check_cut(reply: ObservedReply) -> None:
    """Cut off within a thought or a call: finish_reason says so, and nothing of it is shown."""
    check_clean(reply, "length")
    require(not reply.content, f"the content holds a part of it: {reply.content!r}")


def check_same(replies: Sequence[ObservedReply]) -> None:
    """All replies are equal, streamed or whole: the model is greedy."""
    first, *others = [
        (r.content, r.reasoning, [(c.name, read_arguments(c.arguments)) for c in r.calls], r.finish_reason)
        for r in replies
    ]
    for other in others:
        require(other == first, f"not the same twice: {first} and {other}")


def check_calls(reply: ObservedReply, *wanted: tuple[str, Callable[[Any], bool]]) -> None:
    """Exactly these calls, whose arguments are JSON of the declared types, and no text."""
    if not reply.calls and not any(markers.find(reply.content)):
        expect(reply.finish_reason != "stop", f"it makes no call: {reply.content!r}")
    check_clean(reply, "tool_calls")
    expect(not reply.content, f"text beside the calls: {reply.content!r}")
    for call in reply.calls:
        values, types = read_arguments(call.arguments), TYPES.get(call.name, {})
        found = {name: type(value) for name, value in values.items()} if isinstance(values, dict) else {}
        require(types and found == types, f"wrong arguments of {call.name}: {call.arguments}")
    expect([c.name for c in reply.calls] == [name for name, _ in wanted], f"the calls are {reply.calls}")
    for call, (_, right) in zip(reply.calls, wanted, strict=True):
        expect(right(read_arguments(call.arguments)), f"other arguments: {call.arguments}")
    ids = {c.id for c in reply.calls}
    require(len(ids) == len(reply.calls) and all(ids), f"ids are not distinct: {ids}")


def about_priya(values: dict[str, Any]) -> bool:
    """The query contains her name."""
    return "Priya" in str(values.get("query"))


def each(judge: Callable[[ObservedReply], None], *, same: bool = True) -> Judge:
    """Judge each reply; and, if `same`, require that they are equal."""

    def rated(replies: Sequence[ObservedReply]) -> None:
        for reply in replies:
            judge(reply)
        if same:
            check_same(replies)

    return rated


def turn_with(call: ReplyCall, result: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """An assistant message with this call, and the message with the tool's result."""
    function = {"name": call.name, "arguments": call.arguments}
    asked = {"id": call.id, "type": "function", "function": function}
    return (
        {"role": "assistant", "content": None, "tool_calls": [asked]},
        {"role": "tool", "tool_call_id": call.id, "content": result},
    )


OLD_CALL = ReplyCall(0, "call_1", "search_memory", '{"query": "Priya trip"}')
RESULT = turn_with(OLD_CALL, "Priya said the trip to Mysuru is on Friday.")
NO_SUCH = {"type": "no_such_format"}
LONG = user("hello " * 6000)


def made(reply: ObservedReply) -> int:
    """The tokens of the reply, by its usage."""
    return reply.completion_tokens or 0


def judge_usage(replies: Sequence[ObservedReply]) -> None:
    """Usage is present and consistent if it was requested; otherwise no chunk has it."""
    asked, silent, whole = replies
    for reply in replies:
        check_spoken(reply)
    require(silent.usage is None, "a usage that was not requested")
    for reply in (asked, whole):
        require(reply.usage is not None, "no usage")
        require(reply.prompt_tokens and reply.completion_tokens, f"empty counts: {reply.usage}")
        total = (reply.usage or {}).get("total_tokens")
        require(total == (reply.prompt_tokens or 0) + made(reply), f"counts do not add up: {reply.usage}")


def judge_off(reply: ObservedReply) -> None:
    """No thought was generated: all tokens of the usage are in the answer, but for the end token."""
    check_spoken(reply)
    if reply.content_tokens is not None:
        extra = made(reply) - reply.content_tokens
        require(extra <= 2, f"{extra} tokens were generated that the caller does not get")


def judge_on(replies: Sequence[ObservedReply]) -> None:
    """The thought is visible in the model that shows thoughts, stripped in the other, and counted in both."""
    *with_reasoning, strip_stream, strip_whole = replies
    for reply in with_reasoning:
        expect(reply.reasoning.strip(), NO_THOUGHT)
        check_clean(reply, "stop")
        require(reply.content.strip(), "no answer after the thought")
    check_same(with_reasoning)
    for reply in (strip_stream, strip_whole):
        check_spoken(reply)
        require(reply.content == with_reasoning[0].content, "another answer without the thought")
        if reply.content_tokens is not None:
            require(made(reply) > reply.content_tokens + 2, "it did not think")


def budget(tokens: int) -> Check:
    """The check that a thought has at most `tokens` tokens, and that an answer follows."""

    def judge(reply: ObservedReply) -> None:
        check_answered(reply)
        if tokens <= 1:
            require(len(reply.reasoning.split()) <= tokens, f"it thought: {reply.reasoning!r}")
        else:
            expect(reply.reasoning.strip(), NO_THOUGHT)
        if reply.thought_tokens is not None:
            require(reply.thought_tokens <= tokens, f"{reply.thought_tokens} tokens of thought")

    thinking = {"type": "enabled", "budget_tokens": tokens}
    asks = both(SUM, with_reasoning=True, count=True, thinking=thinking)
    return Check(f"thinking budget {tokens}", asks, each(judge), after=THINKING)


def judge_refusal(reply: ObservedReply) -> None:
    """The engine's 400 reaches the caller as 400, in OpenAI's error envelope."""
    error = reply.envelope or {}
    require(error, "no error")
    require(reply.status == 400, f"status {reply.status}")
    require(error.keys() == {"message", "type", "code", "param"}, f"not OpenAI's envelope: {error}")
    require(error.get("type") == "invalid_request_error", f"type {error.get('type')}")
    require(error.get("message"), "an error without a message")


def judge_long(reply: ObservedReply) -> None:
    """Refused by an engine whose context is too short, answered by any other."""
    if reply.error is not None:
        judge_refusal(reply)
    else:
        require(reply.finish_reason in ("stop", "length"), f"finish_reason is {reply.finish_reason}")


def judge_length(reply: ObservedReply) -> None:
    """Cut off at max_tokens."""
    check_clean(reply, "length")
    require(reply.content, "no content")
    if reply.usage is not None:
        require(made(reply) == 3, f"{made(reply)} tokens, not 3")


def judge_none(reply: ObservedReply) -> None:
    """With tool_choice none there is no call, and no text of a call."""
    check_said(reply, "stop", lacks="search_memory")
    require(not reply.calls, f"calls: {reply.calls}")


def judge_after_thought(reply: ObservedReply) -> None:
    """A thought, then a call."""
    expect(reply.reasoning.strip(), "no thought before the call")
    check_calls(reply, ("search_memory", about_priya))


TOOLS = [MEMORY, WEB]
CANCEL = "cancel frees the engine"
"""The one check that is not request and reply: the runner disconnects and looks at the engine's load."""

CHECKS: tuple[Check, ...] = (
    Check("streamed", (ask(HELLO),), each(check_spoken)),
    Check("whole, and the same words", both(HELLO), each(check_spoken)),
    Check("a fact", both(FRANCE), each(lambda r: check_spoken(r, "Paris"))),
    Check("a tool call", both(PRIYA, tools=TOOLS), each(lambda r: check_calls(r, ("search_memory", about_priya)))),
    Check("typed arguments, parallel calls", both(BOTH, tools=[LIGHT, TIMER]),
        each(lambda r: check_calls(r, ("set_light", lambda it: it == {"on": True, "room": "kitchen"}), ("set_timer", lambda it: it == {"minutes": 10})))),
    Check("a tool's result is spoken", both(PRIYA, *RESULT, tools=TOOLS), each(lambda r: check_spoken(r, "Friday"))),
    Check("tools that are not needed", both(FRANCE, tools=TOOLS), each(lambda r: check_spoken(r, "Paris"))),
    Check("tool_choice none", both(PRIYA, tools=TOOLS, tool_choice="none"), each(judge_none)),
    Check("tool_choice required", both(PRIYA, tools=TOOLS, tool_choice="required"),
        each(lambda r: check_calls(r, ("search_memory", about_priya)))),
    Check("thinking off: no token of it is paid for", both(SUM, with_reasoning=True, count=True), each(judge_off)),
    Check(THINKING, (*both(SUM, with_reasoning=True, **ON), *both(SUM, count=True, **ON)), judge_on),
    *(budget(n) for n in (0, 1, 8, 64)),
    Check("a thought, then a call", both(PRIYA, tools=TOOLS, with_reasoning=True, **ON), each(judge_after_thought), after=THINKING),
    Check("a thought cut by max_tokens", both(SUM, **ON, max_tokens=5), each(check_cut), after=THINKING),
    Check("a call cut by max_tokens", both(PRIYA, tools=TOOLS, max_tokens=12), each(check_cut), after="a tool call"),
    Check("usage for those who ask", (*both(HELLO)[:1], ask(HELLO), ask(HELLO, stream=False)), judge_usage),
    Check("stop sequences", both(FRANCE, stop=["Paris"]), each(lambda r: check_said(r, "stop", has="France", lacks="Paris"))),
    Check("length", both(user("Tell me about yourself"), max_tokens=3), each(judge_length)),
    Check("prefill", both(FRANCE, {"role": "assistant", "content": "The capital of"}),
        each(lambda r: check_said(r, "stop", has="Paris", lacks="capital of"))),
    Check("four at once", tuple(ask(FRANCE, stream=s) for s in (True, True, False, False)),
        each(lambda r: check_spoken(r, "Paris")), together=True),
    Check("error: a field the engine refuses", both(HELLO, response_format=NO_SUCH), each(judge_refusal, same=False)),
    Check("error: a prompt that does not fit", both(LONG), each(judge_long, same=False)),
)  # fmt: skip
