"""Bugs that real proxies and engines had, as cases: what an engine sent, what a caller must get.

V is vLLM, L is llama.cpp; numbers are their issues. Every case is run whole and byte by byte, for
a caller who streams and for one who does not, and must give the same each time.
"""

import json
from dataclasses import dataclass
from typing import Any

import pytest

from app.stream.holdback import UNBOUNDED
from app.stream.pipeline import StreamPolicy
from tests.app.stream.wire import (
    Heard,
    chunk,
    event,
    heard_streaming,
    heard_whole,
    policy,
    stream,
)
from tests.looped import looped

DONE = b"data: [DONE]\n\n"


@dataclass
class Case:
    """One bug: the engine's bytes, what the request allows, and what is right."""

    name: str
    data: bytes
    content: str = ""
    thought: str = ""
    calls: tuple[tuple[str, Any], ...] = ()
    finish: str | None = "stop"
    error: str | None = None
    policy: StreamPolicy = policy()


def call_text(name: str, arguments: str) -> str:
    return f'<tool_call>\n{{"name": "{name}", "arguments": {arguments}}}\n</tool_call>'


def xml(name: str, *parameters: tuple[str, str]) -> str:
    body = "".join(f"<parameter={key}>\n{value}\n</parameter>\n" for key, value in parameters)
    return f"<tool_call>\n<function={name}>\n{body}</function>\n</tool_call>"


def tool_delta(index: int | None, **function: Any) -> dict[str, Any]:
    delta: dict[str, Any] = {"function": function}
    if "name" in function:
        delta |= {"id": f"call-{index}", "type": "function"}
    if index is not None:
        delta["index"] = index
    return {"tool_calls": [delta]}


LEAK = policy(reasoning_is_answer=True)
THINKING = policy(thinking=True, guard=UNBOUNDED)
PROSE = "The tag `<tool_call>` opens a call, and so does `<function=`. That is all."

CASES = [
    Case("01 V#53284 the answer came as reasoning, with thinking off", stream({"reasoning": "It is "}, {"reasoning": "two."}), "It is two.", policy=LEAK),
    Case("02 V#19839 the same under reasoning_content", stream({"role": "assistant", "content": None, "reasoning_content": "Two."}), "Two.", policy=LEAK),
    Case("02b reasoning that was cut by length is no answer", stream({"reasoning": "Let me see"}, finish="length"), thought="Let me see", finish="length", policy=LEAK),
    Case("03 V#34937 a closing tag only", stream("R", "</think>", "A"), "A", "R", policy=THINKING),
    Case("04 V#39056 a call inside an open thought survives", stream("<think>I must look. " + xml("web_search", ("query", "ISRO"))), thought="I must look. " + xml("web_search", ("query", "ISRO")), calls=(("web_search", {"query": "ISRO"}),), finish="tool_calls"),
    Case("04b the same in the reasoning field", stream({"reasoning": "I must look. "}, {"reasoning": call_text("web_search", '{"query": "ISRO"}')}), thought="I must look. " + call_text("web_search", '{"query": "ISRO"}'), calls=(("web_search", {"query": "ISRO"}),), finish="tool_calls"),
    Case("04c a call that was only thought of is none", stream("<think>maybe " + call_text("now", "{}") + "</think>No need."), "No need.", "maybe " + call_text("now", "{}")),
    Case("a thought that the prompt opened is cut before its closing tag", stream("12 plus 2", finish="length"), "", "12 plus 2", finish="length", policy=policy(thinking=True, guard=UNBOUNDED)),
    Case("with thinking on, a whole reply without a tag is an answer", stream("Hello there."), "Hello there.", policy=policy(thinking=True, guard=UNBOUNDED)),
    Case("05 V#45763 the first thought tokens came as content", stream("The user", {"reasoning": " wants a sum."}, "Four."), "Four.", "The user wants a sum.", policy=THINKING),
    Case("06 V#28806 empty arguments in a hermes call", stream(*call_text("now", "{}")), calls=(("now", {}),), finish="tool_calls"),
    Case("06b empty arguments from the engine", stream(tool_delta(0, name="now", arguments="")), calls=(("now", {}),), finish="tool_calls"),
    Case("07 V#21301 a call without arguments", stream('<tool_call>{"name": "now"}</tool_call>'), calls=(("now", {}),), finish="tool_calls"),
    Case("07b a header without the key, at the end", stream(tool_delta(0, name="now")), calls=(("now", {}),), finish="tool_calls"),
    Case("08 V#19056 a boolean split by token", stream('<tool_call>{"name": "set_light", "arguments": {"on": tr', "ue", "}", "}\n</tool_call>"), calls=(("set_light", {"on": True}),), finish="tool_calls"),
    Case("08b V#20678 a number split by token", stream('<tool_call>{"name": "set_volume", "arguments": {"volume": 503', "06", "}}"), calls=(("set_volume", {"volume": 50306}),), finish="tool_calls"),
    Case("08c a number in XML split by token", stream("<tool_call><function=set_volume><parameter=volume>\n3", "0", "\n</para", "meter></function></tool_call>"), calls=(("set_volume", {"volume": 30}),), finish="tool_calls"),
    Case("09 V#10395 arguments: null", stream('<tool_call>{"name": "now", "arguments": null}</tool_call>'), calls=(("now", {}),), finish="tool_calls"),
    Case("09b the arguments before the name", stream('<tool_call>{"arguments": {"query": "a"}, "name": "web_search"}</tool_call>'), calls=(("web_search", {"query": "a"}),), finish="tool_calls"),
    Case("09c a name inside the arguments is not the name", stream('<tool_call>{"arguments": {"query": "{\\"name\\": \\"now\\"}"}, "name": "web_search"}</tool_call>'), calls=(("web_search", {"query": '{"name": "now"}'}),), finish="tool_calls"),
    Case("10 V#21544 an unbalanced brace in a string", stream(call_text("run", '{"command": "mkdir -p test/{test1,test2"}')), calls=(("run", {"command": "mkdir -p test/{test1,test2"}),), finish="tool_calls"),
    Case("10b the end tag inside a string", stream(call_text("run", '{"command": "echo </tool_call> }}"}')), calls=(("run", {"command": "echo </tool_call> }}"}),), finish="tool_calls"),
    Case("11 V#28297 a raw call as content, finish stop", stream("Let me look. ", *call_text("web_search", '{"query": "ISRO"}')), "Let me look. ", calls=(("web_search", {"query": "ISRO"}),), finish="tool_calls"),
    Case("12 V#34101 the outer brace is not an argument's", stream('<tool_call>{"name": "web_search", "arguments": {"query": "x"}}'), calls=(("web_search", {"query": "x"}),), finish="tool_calls"),
    Case("12b the outer brace never came", stream('<tool_call>{"name": "web_search", "arguments": {"query": "x"}'), calls=(("web_search", {"query": "x"}),), finish="tool_calls"),
    Case("13 V#42210 what may have been a tag is given back", stream("Is 3 <", finish="stop"), "Is 3 <"),
    Case("13b a longer beginning is no speech", stream("See <tool_ca"), "See "),
    Case("13c nor is that of a thought", stream("See <thi"), "See ", policy=policy(tools=False)),
    Case("14 club-3090#1191 prose about tags, no tools", stream(*PROSE), PROSE, policy=policy(tools=False)),
    Case("14b a whole call, no tools: it is not spoken", stream("Sure. " + call_text("now", "{}")), "Sure. ", policy=policy(tools=False)),
    Case("14d the same where calls are left as text", stream(call_text("now", "{}")), call_text("now", "{}"), policy=policy(tools=False, unasked="text")),
    Case("14e nothing but a call, no tools", stream(call_text("now", "{}")), finish=None, error="reply_fully_filtered", policy=policy(tools=False)),
    Case("14f the engine's own call, no tools", stream("Sure.", tool_delta(0, name="now", arguments="{}"), finish="tool_calls"), "Sure.", policy=policy(tools=False)),
    Case("14c prose about tags, with tools", stream(*PROSE), PROSE),
    Case("15 V#57541 a call in a fence is not made", stream("Like so:\n```\n" + call_text("now", "{}") + "\n```\nDone."), "Like so:\n```\n" + call_text("now", "{}") + "\n```\nDone."),
    Case("15b in a tilde fence", stream("~~~\n" + xml("now") + "\n~~~"), "~~~\n" + xml("now") + "\n~~~"),
    Case("15c a fence inside a parameter is kept", stream(xml("run", ("command", "```sh\nls\n```"))), calls=(("run", {"command": "```sh\nls\n```"}),), finish="tool_calls"),
    Case("15d an inline fence opens nothing", stream("Use ```x``` then.\n" + call_text("now", "{}")), "Use ```x``` then.\n", calls=(("now", {}),), finish="tool_calls"),
    Case("16 V#45256 everything in one delta", stream("Hi!" + call_text("web_search", '{"query": "a"}') + call_text("now", "{}")), "Hi!", calls=(("web_search", {"query": "a"}), ("now", {})), finish="tool_calls"),
    Case("17 V#36774 a name without its bracket", stream("<function=web_search\n<parameter=query>\na\n</parameter>\n</function>" + call_text("now", "{}")), calls=(("web_search", {"query": "a"}), ("now", {})), finish="tool_calls"),
    Case("17b a hopeless call, then a good one", stream("<tool_call>{'name': 'now'}</tool_call>" + call_text("now", "{}")), calls=(("now", {}),), finish="tool_calls"),
    Case("18 V#48846 one newline off each side, no more", stream("<tool_call><function=run><parameter=command>\n    code\n\n</parameter></function></tool_call>"), calls=(("run", {"command": "    code\n"}),), finish="tool_calls"),
    Case("19 V#46091 an empty pair of tags swallows nothing", stream("<tool_call></tool_call>Hello."), "Hello."),
    Case("20 V#36032 an object parameter under anyOf", stream(xml("run", ("command", "ls"), ("env", '{"A": 1}'))), calls=(("run", {"command": "ls", "env": {"A": 1}}),), finish="tool_calls"),
    Case("20b V#35615 a string is not encoded twice", stream(xml("web_search", ("query", '"quoted"'))), calls=(("web_search", {"query": '"quoted"'}),), finish="tool_calls"),
    Case("20c null where the schema allows it", stream(xml("run", ("command", "ls"), ("env", "null"))), calls=(("run", {"command": "ls", "env": None}),), finish="tool_calls"),
    Case("21 a missing end of a parameter", stream("<tool_call><function=search_memory><parameter=query>\na\n<parameter=limit>\n5\n</parameter></function></tool_call>"), calls=(("search_memory", {"query": "a", "limit": 5}),), finish="tool_calls"),
    Case("21b a missing opening tag", stream("<function=now>\n</function>\n</tool_call>"), calls=(("now", {}),), finish="tool_calls"),
    Case("21c a missing end of the function", stream("<tool_call><function=web_search><parameter=query>a</parameter></tool_call>Bye."), "Bye.", calls=(("web_search", {"query": "a"}),), finish="tool_calls"),
    Case("23 V#33402 delta.reasoning", stream({"reasoning": "Hm."}, "Yes."), "Yes.", "Hm.", policy=policy(thinking=True)),
    Case("23b delta.reasoning_content", stream({"reasoning_content": "Hm."}, "Yes."), "Yes.", "Hm.", policy=policy(thinking=True)),
    Case("24 V#43708 only thought, cut by length, is an honest length", stream({"reasoning": "Hm, hm"}, finish="length"), thought="Hm, hm", finish="length", policy=policy(thinking=True)),
    Case("26 L#28182 the rest of a cut thought, guarded", stream("left", "over</think>answer"), "answer", "leftover", policy=policy(guard=64)),
    Case("26b unguarded: the tag at least is never heard", stream("over</think>answer"), "over answer"),
    Case("26c a relapse is guarded without being asked", stream({"reasoning_content": "Hm"}, "leftover</think>answer"), "answer", "Hmleftover"),
    Case("27 L#23320 thinking on, no opening tag", stream("I think. ", "</think>\n\n", "Yes."), "Yes.", "I think. ", policy=THINKING),
    Case("27b thinking on, and it did not think", stream("Yes."), "Yes.", policy=THINKING),
    Case("28 L#20260 an error instead of a reply", event({"error": {"code": 500, "message": "Failed to parse input at pos 5", "type": "server_error"}}), error="server_error"),
    Case("29 L#24807 a doubled end tag", stream("<tool_call><function=web_search><parameter=query>a</parameter></parameter></function></tool_call>"), calls=(("web_search", {"query": "a"}),), finish="tool_calls"),
    Case("29b a stream that is aborted inside a call", stream("<tool_call><function=web_search><parameter=query>a", finish=None, done=False) + event({"error": "parse failed"}), calls=(("web_search", None),), finish=None, error="engine_error"),
    Case("30 ollama#17846 no finish_reason, no [DONE]", stream("Hel", finish=None, done=False), "Hel", finish=None, error="upstream_truncated"),
    Case("30b [DONE] without a finish_reason", stream("Hel", finish=None), "Hel", finish=None, error="upstream_truncated"),
    Case("30f vLLM's abort is no end", stream("Hel", finish="abort"), "Hel", finish=None, error="upstream_truncated"),
    Case("30g nor is its error", stream("Hel", finish="error"), "Hel", finish=None, error="upstream_truncated"),
    Case("30h an unknown word is handed on", stream("Hel", finish="banana"), "Hel", finish="banana"),
    *(
        Case(f"30h nor is {reason}", stream("Hel", finish=reason), "Hel", finish=None, error="upstream_truncated")
        for reason in ("insufficient_system_resource", "internal_error", "Timed_Out", "engine_overloaded", "preempted", "request-cancelled")
    ),
    Case("30c an empty stream", b"", finish=None, error="upstream_truncated"),
    Case("31 L#14566 an error frame after 200", stream("Hel", finish=None, done=False) + event({"error": {"message": "oom", "code": 500}}) + DONE, "Hel", finish=None, error="engine_error"),
    *(
        Case(f"31c an error in an event of its own, then {name}", stream("Hel", finish=None, done=False) + b"event: error\n" + event({"message": "oom"}) + end, "Hel", finish=None, error="engine_error")
        for name, end in {"nothing": b"", "a clean end": stream(" lo")}.items()
    ),
    Case("31d vLLM's error without an envelope, then a clean end", stream("Hel", finish=None, done=False) + event({"object": "error", "message": "oom", "type": "server_error", "code": 500}) + stream(" lo"), "Hel", finish=None, error="server_error"),
    Case("31b a bare error field", stream("Hel", finish=None, done=False) + b'error: {"code":500,"message":"slot"}\n\n', "Hel", finish=None, error="engine_error"),
    Case("31c pings and empty data frames", b":\n\n: ping\n\ndata:\n\ndata: \n\n" + stream("Hi."), "Hi."),
    Case("33 strands#3955 usage after the finish", stream("Hi.", done=False) + event({"choices": [], "usage": {"prompt_tokens": 5, "completion_tokens": 2}}) + DONE, "Hi."),
    Case("33b the last [DONE] has no blank line", stream("Hi.", done=False) + b"data: [DONE]", "Hi."),
    Case("33c no [DONE] at all, but a finish (transformers serve)", stream("Hi.", done=False), "Hi."),
    Case("33d the finish chunk has no blank line", stream("Hi.", finish=None, done=False) + chunk({}, "stop").rstrip(), "Hi."),
    Case("30d a cut stream gives back what may have been a thought", stream("Is 3 <", finish=None, done=False), "Is 3 <", finish=None, error="upstream_truncated", policy=policy(tools=False)),
    Case("30e but not half of a tag", stream("See <tool_ca", finish=None, done=False), "See ", finish=None, error="upstream_truncated"),
    Case("35 a tag split by token", stream("<thi", "nk>s", "ecret</thi", "nk>AN", "SWER a < b"), "ANSWER a < b", "secret", policy=policy(tools=False)),
    Case("37 newlines behind a closed thought", stream("\n", "\nHello.\n\nBye."), "Hello.\n\nBye."),
    Case("38 QwenLM a stray closing tag later", stream("Hello. ", "</think>", "Bye."), "Hello. Bye."),
    Case("peer3 an unclosed thought stays one", stream("Hi. <think>secret"), "Hi. ", "secret"),
    Case("peer6 a stray brace behind a call", stream('<tool_call>{"name": "now", "arguments": {}}}}\n</tool_call>Bye.'), "Bye.", calls=(("now", {}),), finish="tool_calls"),
    Case("peer7 calls without an index", stream(tool_delta(None, name="now", arguments="{}"), tool_delta(None, name="web_search", arguments='{"query": "a"}')), calls=(("now", {}), ("web_search", {"query": "a"})), finish="tool_calls"),
    Case("peer7b a first index of 1", stream(tool_delta(1, name="now", arguments="{}")), calls=(("now", {}),), finish="tool_calls"),
    Case("peer7c two calls under one index and id (transformers serve)", stream(tool_delta(0, name="now", arguments="{}"), tool_delta(0, name="web_search", arguments='{"query": "a"}')), calls=(("now", {}), ("web_search", {"query": "a"})), finish="tool_calls"),
    Case("one delta with thought, text, call and finish", b'data: {"choices":[{"index":0,"delta":{"reasoning":"Hm","content":"Yes.","tool_calls":[{"index":0,"id":"c","function":{"name":"now","arguments":"{}"}}]},"finish_reason":"tool_calls"}]}\n\n' + DONE, "Yes.", "Hm", (("now", {}),), "tool_calls", policy=policy(thinking=True)),
    Case("finish tool_calls without a call is a stop", stream("Hi.", finish="tool_calls"), "Hi."),
    Case("a whole call of an unknown tool is not spoken, and no call", stream("Well. " + call_text("get_moon", '{"a": 1}')), "Well. "),
    Case("nor is one without a tag that lacks its last bracket", stream('Well.\n{"name": "get_moon", "arguments": {"a": 1}'), "Well.\n"),
    Case("nor is one that the engine made itself", stream("Well.", tool_delta(0, name="get_moon", arguments='{"a": 1}'), tool_delta(1, name="now", arguments="{}")), "Well.", calls=(("now", {}),), finish="tool_calls"),
    Case("where such calls are left as text it is handed on as it was", stream(call_text("get_moon", '{"a": 1}')), calls=(("get_moon", {"a": 1}),), finish="tool_calls", policy=policy(unasked="text")),
    Case("an unknown function that is never finished is text", stream("<function=foo> is how it begins"), "<function=foo> is how it begins"),
    Case("a known function in prose is text", stream("<function=now> is how it begins"), "<function=now> is how it begins"),
    Case("a call cut before its arguments is a call without them", stream('Yes. <tool_call>\n{"name": "web_search", "argu', finish="length"), "Yes. ", calls=(("web_search", None),), finish="length"),
    Case("a call cut before its name is not spoken", stream('Yes. <tool_call>\n{"na', finish="length"), "Yes. ", finish="length"),
    Case("an XML call cut before its name is not spoken", stream("Yes. <tool_call>\n<function=web", finish="length"), "Yes. ", finish="length"),
    Case("a call cut behind its tag is not spoken", stream("Yes. <tool_call>\n", finish="length"), "Yes. ", finish="length"),
    Case("a call in which the stream breaks is not spoken", stream('Yes. <tool_call>\n{"name": "web', finish=None, done=False), "Yes. ", finish=None, error="upstream_truncated"),
    Case("a call cut by length keeps its certain part", stream('<tool_call>{"name": "web_search", "arguments": {"query": "IS', finish="length"), calls=(("web_search", None),), finish="length"),
    Case("a call that turns into nonsense is dropped", stream('Yes. <tool_call>{"name": "web_search", "arguments": {"query": x}}'), "Yes. ", finish="stop"),
    Case("of a reply that is nothing but such a call nothing is left", stream('<tool_call>{"name": "web_search", "arguments": {"query": x}}'), finish=None, error="reply_fully_filtered"),
    Case("two calls in one wrapper", stream("<tool_call><function=now></function><function=set_light><parameter=on>true</parameter></function></tool_call>"), calls=(("now", {}), ("set_light", {"on": True})), finish="tool_calls"),
    Case("a line separator inside JSON is no line end", stream("a\u2028b\u2029c\u0085d"), "a\u2028b\u2029c\u0085d"),
    Case("bad JSON in mid-stream", stream("Hel", finish=None, done=False) + b"data: {broken\n\n", "Hel", finish=None, error="upstream_malformed"),
    Case("prompt progress is nothing", chunk({"role": "assistant", "content": None}, prompt_progress={"total": 9, "processed": 3}) + stream("Hi."), "Hi."),
    Case("timings and token ids are nothing", stream("Hi.", done=False) + event({"choices": [], "timings": {"prompt_ms": 1.5}}) + chunk({}, None, token_ids=[1]) + DONE, "Hi."),
]  # fmt: skip


def check(case: Case, heard: Heard) -> None:
    assert heard.error == case.error
    if case.error and heard.finish is None and not heard.content and not heard.calls:
        return  # a whole reply that broke is an error and nothing else
    assert (heard.content, heard.thought, heard.finish) == (case.content, case.thought, case.finish)
    assert len(heard.calls) == len(case.calls)
    for (name, arguments), (expected, value) in zip(heard.calls, case.calls, strict=True):
        assert name == expected
        if value is not None:
            assert json.loads(arguments) == value


@looped("case", CASES, in_groups_of=40)
@pytest.mark.parametrize("hear", [heard_streaming, heard_whole], ids=["streaming", "whole reply"])
@looped("size", [None, 1, 2, 7])
def test_a_caller_gets_what_is_right_on_any_split(case: Case, hear: Any, size: int | None) -> None:
    sizes = [size] * len(case.data) if size else []
    check(case, hear(case.data, case.policy, sizes))


@looped("case", CASES, in_groups_of=40)
@looped("end", [b"\r\n", b"\r"])
def test_line_ends_make_no_difference(case: Case, end: bytes) -> None:
    data = case.data.replace(b"\n", end)
    check(case, heard_streaming(data, case.policy, [1] * len(data)))


def by_character(data: bytes) -> bytes:
    """The same reply with one character a delta, as an engine with tiny tokens would send it."""
    out = []
    for part in data.split(b"\n\n"):
        try:
            body = json.loads(part.removeprefix(b"data: "))
            delta = body["choices"][0]["delta"]
            (key,) = [k for k in ("content", "reasoning", "reasoning_content") if delta.get(k)]
            assert set(delta) == {key} and not body["choices"][0]["finish_reason"]
            out += [chunk({key: character}) for character in delta[key]]
        except (ValueError, LookupError, TypeError, AssertionError):
            out.append(part + b"\n\n" if part else b"")
    return b"".join(out)


@looped("case", CASES, in_groups_of=40)
def test_one_character_a_delta_makes_no_difference(case: Case) -> None:
    check(case, heard_streaming(by_character(case.data), case.policy))


@looped("case", [c for c in CASES if c.finish and not c.error], in_groups_of=40)
def test_a_clean_reply_ends_with_done_and_a_broken_one_does_not(case: Case) -> None:
    assert heard_streaming(case.data, case.policy).done
