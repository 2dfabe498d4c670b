"""The rows themselves. Pure; the words they are made of are in `rows`."""

from collections.abc import Sequence

from app.conformance.reply import Call, Reply
from app.conformance.rows import (
    BOTH,
    FRANCE,
    HELLO,
    LIGHT,
    MEMORY,
    ON,
    PRIYA,
    SUM,
    TIMER,
    WEB,
    Row,
    about_priya,
    alike,
    ask,
    both,
    called,
    clean,
    each,
    is_light,
    is_ten,
    need,
    spoken,
    turn_with,
    user,
)

OLD_CALL = Call("call_1", "search_memory", '{"query": "Priya trip"}')
RESULT = turn_with(OLD_CALL, "Priya said the trip to Mysuru is on Friday.")
NO_SUCH = {"type": "no_such_format"}
LONG = user("hello " * 6000)


def judge_usage(replies: Sequence[Reply]) -> None:
    """ParsedRequest for, it is there and adds up; not asked for, no chunk carries it."""
    asked, silent, whole = replies
    for reply in replies:
        spoken(reply)
    need(silent.usage is None, "usage that nobody asked for")
    for reply in (asked, whole):
        need(reply.usage is not None, "no usage")
        need(reply.prompt > 0 and reply.completion > 0, f"empty counts: {reply.usage}")
        total = (reply.usage or {}).get("total_tokens")
        need(total == reply.prompt + reply.completion, f"counts do not add up: {reply.usage}")


def judge_off(reply: Reply) -> None:
    """Not hidden: not made. Every token that was paid for is in the answer, but for its end."""
    spoken(reply)
    if reply.content_tokens is not None:
        extra = reply.completion - reply.content_tokens
        need(extra <= 2, f"{extra} tokens were generated that nobody hears")


def judge_on(replies: Sequence[Reply]) -> None:
    """Heard by the model that shows thoughts, and by no other; paid for by both."""
    *aloud, strip_stream, strip_whole = replies
    for reply in aloud:
        clean(reply, "stop")
        need(reply.thought.strip(), "no thought")
        need(reply.content.strip(), "no answer after the thought")
    alike(aloud)
    for reply in (strip_stream, strip_whole):
        spoken(reply)
        need(reply.content == aloud[0].content, "another answer without the thought")
        if reply.content_tokens is not None:
            need(reply.completion > reply.content_tokens + 2, "it did not think")


def budget(tokens: int) -> Row:
    """A thought of at most so many tokens, and then an answer."""

    def judge(reply: Reply) -> None:
        clean(reply, "stop")
        need(reply.content.strip(), "no answer")
        need(reply.content == reply.content.lstrip(), "the answer begins with white space")
        if tokens <= 1:
            need(len(reply.thought.split()) <= tokens, f"it thought: {reply.thought!r}")
        else:
            need(reply.thought.strip(), "no thought")
        if reply.thought_tokens is not None:
            need(reply.thought_tokens <= tokens, f"{reply.thought_tokens} tokens of thought")

    thinking = {"type": "enabled", "budget_tokens": tokens}
    asks = both(SUM, aloud=True, count=True, thinking=thinking)
    return Row(f"thinking budget {tokens}", asks, each(judge))


def judge_cut_thought(reply: Reply) -> None:
    """Cut in mid-thought: nothing is said, and the cut is no clean end."""
    clean(reply, "length")
    need(not reply.content, f"a piece of the thought is heard: {reply.content!r}")


def judge_cut_call(reply: Reply) -> None:
    """Cut in mid-call: nobody may take it for a whole one."""
    clean(reply, "length")
    need(not reply.content, f"text beside the call: {reply.content!r}")


def judge_refusal(reply: Reply) -> None:
    """The engine's 400 is the caller's 400, in OpenAI's envelope."""
    need(reply.error is not None, "no error")
    error = reply.error or {}
    need(reply.status == 400, f"status {reply.status}")
    need(error.keys() == {"message", "type", "code", "param"}, f"not OpenAI's envelope: {error}")
    need(error.get("type") == "invalid_request_error", f"type {error.get('type')}")
    need(error.get("message"), "an error without words")


def judge_long(reply: Reply) -> None:
    """Refused, by an engine whose context it does not fit; answered by any other."""
    if reply.error is not None:
        judge_refusal(reply)
    else:
        need(reply.finish in ("stop", "length"), f"finish_reason is {reply.finish}")


def judge_stop(reply: Reply) -> None:
    """The stop word and what follows are not heard."""
    clean(reply, "stop")
    need("France" in reply.content, f"nothing before the stop word: {reply.content!r}")
    need("Paris" not in reply.content, f"the stop word is heard: {reply.content!r}")


def judge_prefill(reply: Reply) -> None:
    """The answer goes on where the last message ends."""
    clean(reply, "stop")
    need("Paris" in reply.content, f"no answer: {reply.content!r}")
    need("capital of" not in reply.content, f"it began anew: {reply.content!r}")


def judge_length(reply: Reply) -> None:
    """Cut where it was asked to."""
    clean(reply, "length")
    need(reply.content, "nothing is said")
    if reply.usage is not None:
        need(reply.completion == 3, f"{reply.completion} tokens, not 3")


def judge_none(reply: Reply) -> None:
    """tool_choice none: never a call, and never the text of one."""
    clean(reply, "stop")
    need(not reply.calls, f"calls: {reply.calls}")
    need("search_memory" not in reply.content, f"the text of a call is heard: {reply.content!r}")


def judge_after_thought(reply: Reply) -> None:
    """A thought, then a call."""
    need(reply.thought.strip(), "no thought before the call")
    called(reply, ("search_memory", about_priya))


HURRY = {"thinking": {"type": "enabled", "budget_ms": 1}}


def judge_time(replies: Sequence[Reply]) -> None:
    """When the answer is due, the thought ends and the answer begins: one reply, summed usage."""
    *hurried, free = replies
    # One of them may be done with so short a thought before anybody could end it.
    shorter = [len(reply.thought) < len(free.thought) for reply in hurried]
    need(any(shorter), f"it thought to the end, each time: {free.thought!r}")
    for reply in hurried:
        clean(reply, "stop")
        need(reply.content.strip(), "no answer")
        need(reply.content == reply.content.lstrip(), "the answer begins with white space")
        if reply.usage is not None and reply.thought_tokens is not None:
            made = reply.completion - (reply.content_tokens or 0) - reply.thought_tokens
            need(0 <= made <= 4, f"{made} tokens were paid for that are in no field: {reply.usage}")


TOOLS = [MEMORY, WEB]
CANCEL = "cancel frees the engine"
"""The one row that is not question and answer: the runner asks, leaves, and looks at the engine."""

ROWS: tuple[Row, ...] = (
    Row("streamed", (ask(HELLO),), each(spoken)),
    Row("whole, and the same words", both(HELLO), each(spoken)),
    Row("a fact", both(FRANCE), each(lambda r: spoken(r, "Paris"))),
    Row("a tool call", both(PRIYA, tools=TOOLS), each(lambda r: called(r, ("search_memory", about_priya)))),
    Row("typed arguments, parallel calls", both(BOTH, tools=[LIGHT, TIMER]),
        each(lambda r: called(r, ("set_light", is_light), ("set_timer", is_ten)))),
    Row("a tool's result is spoken", both(PRIYA, *RESULT, tools=TOOLS), each(lambda r: spoken(r, "Friday"))),
    Row("tools that are not needed", both(FRANCE, tools=TOOLS), each(lambda r: spoken(r, "Paris"))),
    Row("tool_choice none", both(PRIYA, tools=TOOLS, tool_choice="none"), each(judge_none)),
    Row("tool_choice required", both(PRIYA, tools=TOOLS, tool_choice="required"),
        each(lambda r: called(r, ("search_memory", about_priya)))),
    Row("thinking off: no token of it is paid for", both(SUM, aloud=True, count=True), each(judge_off)),
    Row("thinking on", (*both(SUM, aloud=True, **ON), *both(SUM, count=True, **ON)), judge_on),
    *(budget(n) for n in (0, 1, 8, 64)),
    Row("thinking time budget", (*both(SUM, aloud=True, count=True, **HURRY) * 2, ask(SUM, aloud=True, **ON)), judge_time),
    Row("a thought, then a call", both(PRIYA, tools=TOOLS, aloud=True, **ON), each(judge_after_thought)),
    Row("a thought cut by max_tokens", both(SUM, **ON, max_tokens=5), each(judge_cut_thought)),
    Row("a call cut by max_tokens", both(PRIYA, tools=TOOLS, max_tokens=12), each(judge_cut_call)),
    Row("usage for those who ask", (*both(HELLO)[:1], ask(HELLO), ask(HELLO, stream=False)), judge_usage),
    Row("stop sequences", both(FRANCE, stop=["Paris"]), each(judge_stop)),
    Row("length", both(user("Tell me about yourself"), max_tokens=3), each(judge_length)),
    Row("prefill", both(FRANCE, {"role": "assistant", "content": "The capital of"}), each(judge_prefill)),
    Row("four at once", tuple(ask(FRANCE, stream=s) for s in (True, True, False, False)),
        each(lambda r: spoken(r, "Paris")), together=True),
    Row("error: a field the engine refuses", both(HELLO, response_format=NO_SUCH), each(judge_refusal, same=False)),
    Row("error: a prompt that does not fit", both(LONG), each(judge_long, same=False)),
)  # fmt: skip
