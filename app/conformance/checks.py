"""The checks of the conformance suite: requests, and what the replies of every engine must look like. Pure.

A check is a row: some requests, and what it wants of their replies. `judge` raises `CheckFailed` with the reason.
The prompts are simple enough for a model of any size, and nothing here depends on one engine.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from gates.contracts import markers
from gates.detect.toolcall import find_call_faults, find_mismatch, read_arguments
from gates.reply.reply import Reply


class CheckFailed(Exception):
    """A reply does not meet a requirement; the message names it."""


class ModelLacks(CheckFailed):
    """The model does not do what the check asks it for, so that the engine's part cannot be seen."""


Body = Mapping[str, Any]
"""A request as it is sent, to one of the gateway's two models: `with_reasoning` shows its thoughts, `annie` does not."""


@dataclass(frozen=True)
class Want:
    """Expectations of every reply to a check. The model is at fault for `has`, `calls` and a missing thought, the engine for
    the rest."""

    finish: str = "stop"
    has: str = ""
    lacks: str = ""
    calls: tuple[Mapping[str, Any], ...] = ()  # as `gates.detect.toolcall` expects them
    thinks: bool = False
    budget: int | None = None  # tokens of the thought, at most
    cut: bool = False  # within a thought or a call: nothing of it is shown
    usage: bool = False  # present and consistent if it was requested; otherwise no chunk has it
    refused: bool = False  # with the engine's 400


@dataclass(frozen=True)
class Check:
    """One check. `after`: the check of what it needs the model to do."""

    name: str
    asks: tuple[Body, ...]
    want: Want
    after: str = ""


def require(true: object, otherwise: str, error: type[CheckFailed] = CheckFailed) -> None:
    """Raises `error` with the words `otherwise` unless `true` is truthy."""
    if not true:
        raise error(otherwise)


expect = partial(require, error=ModelLacks)


def judge(check: Check, replies: Sequence[Reply]) -> None:
    """Each reply is what the check wants, and all say the same, streamed or whole: the model is greedy."""
    said = list[tuple[object, object]]()
    for ask, reply in zip(check.asks, replies, strict=True):
        if check.want.refused:
            require(reply.status == 400, f"status {reply.status}")
            continue
        _judge_reply(ask, check.want, reply)
        calls = [(call.name, read_arguments(call.arguments)) for call in reply.calls]
        rest = (reply.content, calls, reply.finish_reason)
        said.append((shows_thoughts(ask) and reply.reasoning, rest))
    for thought, told in said:
        require(told == said[0][1], f"not the same twice: {said[0][1]} and {told}")
        require(thought in (False, said[0][0]), f"not the same thought twice: {said[0][0]} and {thought}")


def _judge_reply(ask: Body, want: Want, reply: Reply) -> None:
    content, has_tag = reply.content, any(markers.find(reply.content))
    if want.calls and not has_tag and reply.finish_reason == "stop":
        expect(reply.calls, f"it makes no call: {content!r}")
    if not want.calls and not want.cut:
        may_call = ask.get("tool_choice") != "none"
        (expect if may_call else require)(
            not reply.calls, f"it makes a call that is not needed: {reply.calls}"
        )
    thinks = want.thinks and shows_thoughts(ask)
    expect(reply.reasoning.strip() or not thinks or reply.error, NO_THOUGHT)
    require(reply.error is None, f"an error: {reply.status} {reply.error}")
    require(reply.done, "no [DONE]")
    expect(want.finish == "length" or reply.finish_reason != "length", NO_END)
    require(reply.finish_reason == want.finish, f"finish_reason is {reply.finish_reason}, not {want.finish}")
    require(not has_tag, f"the content holds a tag: {content!r}")
    require(not any(markers.find(reply.reasoning)), f"the reasoning holds a tag: {reply.reasoning!r}")
    words = want.budget or 0
    require(thinks or len(reply.reasoning.split()) <= words, f"there is reasoning: {reply.reasoning!r}")
    if want.calls:
        expect(not content, f"text beside the calls: {content!r}")
        faults = find_call_faults(reply.calls, ask["tools"])
        require(not faults, "; ".join(map(str, faults)))
        others = find_mismatch(reply.calls, want.calls)
        expect(not others, "; ".join(map(str, others)))
    elif want.cut:
        require(not content, f"the content holds a part of it: {content!r}")
    else:
        require(content.strip(), "no answer")
        continues = ask["messages"][-1]["role"] == "assistant"
        require(continues or not content[0].isspace(), "the answer begins with white space")
    expect(want.has in content, f"no {want.has!r} in {content!r}")
    require(not want.lacks or want.lacks not in content, f"{want.lacks!r} in {content!r}")
    _judge_usage(ask, want, reply)


def _judge_usage(ask: Body, want: Want, reply: Reply) -> None:
    made, usage = reply.completion_tokens or 0, reply.usage
    if want.usage:
        is_asked = "stream_options" in ask or not ask["stream"]
        require(is_asked == (usage is not None), "no usage" if is_asked else "a usage that was not requested")
    if usage is None:
        return
    if want.usage:
        require(reply.prompt_tokens and made, f"empty counts: {usage}")
        total = (reply.prompt_tokens or 0) + made
        require(usage.get("total_tokens") == total, f"counts do not add up: {usage}")
    if want.finish == "length" and not want.cut:
        require(made == ask["max_tokens"], f"{made} tokens, not {ask['max_tokens']}")
    if want.finish == "stop" and not want.thinks and want.budget is None:
        extra = made - len(reply.content.encode())  # each token of the answer has a byte, but for the last
        require(extra <= 2, f"{extra} tokens were generated that the caller does not get")


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
TOOLS = [MEMORY, WEB]

HELLO, FRANCE, SUM = user("Hello!"), user("What is the capital of France?"), user("What is 4 plus 5?")
PRIYA = user("What did Priya say about the trip?")
BOTH = user("Turn on the kitchen light, and set a timer for 10 minutes")
ABOUT = user("Tell me about yourself")
OLD_CALL = {"name": "search_memory", "arguments": '{"query": "Priya trip"}'}
RESULT = (
    {"role": "assistant", "content": None, "tool_calls": [{"id": "call_1", "type": "function", "function": OLD_CALL}]},
    {"role": "tool", "tool_call_id": "call_1", "content": "Priya said the trip to Mysuru is on Friday."},
)  # fmt: skip
NO_SUCH = {"type": "no_such_format"}
ON: dict[str, Any] = {"chat_template_kwargs": {"enable_thinking": True}}
MOST = 128
"""Tokens of a reply: more than an answer takes, and few for a model that never ends one."""


def ask(*messages: Body, stream: bool = True, with_reasoning: bool = False, **fields: Any) -> Body:
    """A request with the usual fields: greedy, at most MOST tokens."""
    model = "with_reasoning" if with_reasoning else "annie"
    usual = {"model": model, "messages": messages, "stream": stream, "temperature": 0, "max_tokens": MOST}
    return {**usual, **fields}


def shows_thoughts(ask: Body) -> bool:
    """Whether the request is for the model that shows its thoughts."""
    return bool(ask["model"] == "with_reasoning")


def both(*messages: Body, **settings: Any) -> tuple[Body, ...]:
    """The same request twice: streamed, with its usage, and whole."""
    usage = {"include_usage": True}
    return ask(*messages, stream_options=usage, **settings), ask(*messages, stream=False, **settings)


def budget(tokens: int) -> Check:
    """The check that a thought has at most `tokens` tokens, and that an answer follows."""
    thinking = {"type": "enabled", "budget_tokens": tokens}
    asks = both(SUM, with_reasoning=True, thinking=thinking)
    return Check(f"thinking budget {tokens}", asks, Want(thinks=tokens > 1, budget=tokens), after=THINKING)


THINKING = "thinking on"
NO_THOUGHT = "it does not think when asked to"
NO_END = "it does not come to an end"
CANCEL = "cancel frees the engine"
"""The one check that is not request and reply: the runner disconnects and looks at the engine's load."""
PARIS = Want(has="Paris")
SEARCHES = {"name": "search_memory", "arguments": {"query": [{"has": ["Priya"]}]}}
SWITCHES = {"name": "set_light", "arguments": {"on": [True], "room": ["kitchen"]}}
WAITS = {"name": "set_timer", "arguments": {"minutes": [10]}}
CALLS = Want("tool_calls", calls=(SEARCHES,))

CHECKS: tuple[Check, ...] = (
    Check("streamed", (ask(HELLO),), Want()),
    Check("whole, and the same words", both(HELLO), Want()),
    Check("a fact", both(FRANCE), PARIS),
    Check("a tool call", both(PRIYA, tools=TOOLS), CALLS),
    Check("typed arguments, parallel calls", both(BOTH, tools=[LIGHT, TIMER]), Want("tool_calls", calls=(SWITCHES, WAITS))),
    Check("a tool's result is spoken", both(PRIYA, *RESULT, tools=TOOLS), Want(has="Friday")),
    Check("tools that are not needed", both(FRANCE, tools=TOOLS), PARIS),
    Check("tool_choice none", both(PRIYA, tools=TOOLS, tool_choice="none"), Want(lacks="search_memory")),
    Check("tool_choice required", both(PRIYA, tools=TOOLS, tool_choice="required"), CALLS),
    Check("thinking off: no token of it is paid for", both(SUM, with_reasoning=True), Want()),
    Check(THINKING, (*both(SUM, with_reasoning=True, **ON), *both(SUM, **ON)), Want(thinks=True)),
    *(budget(n) for n in (0, 1, 8, 64)),
    Check("a thought, then a call", both(PRIYA, tools=TOOLS, with_reasoning=True, **ON),
        Want("tool_calls", calls=(SEARCHES,), thinks=True), after=THINKING),
    Check("a thought cut by max_tokens", both(SUM, **ON, max_tokens=5), Want("length", cut=True), after=THINKING),
    Check("a call cut by max_tokens", both(PRIYA, tools=TOOLS, max_tokens=12), Want("length", cut=True), after="a tool call"),
    Check("usage for those who ask", (*both(HELLO), ask(HELLO)), Want(usage=True)),
    Check("stop sequences", both(FRANCE, stop=["Paris"]), Want(has="France", lacks="Paris")),
    Check("length", both(ABOUT, max_tokens=3), Want("length")),
    Check("prefill", both(FRANCE, {"role": "assistant", "content": "The capital of"}), Want(has="Paris", lacks="capital of")),
    Check("error: a field the engine refuses", both(HELLO, response_format=NO_SUCH), Want(refused=True)),
)  # fmt: skip
