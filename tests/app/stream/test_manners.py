"""What a caller must never hear, on any cut: thoughts in any tag, and calls that are none.

`SECRET` marks what is a thought or part of a broken call. Each reply is cut into deltas of several
sizes, streamed and not, and must be heard the same each time.
"""

import re
import tracemalloc
from dataclasses import dataclass
from itertools import product
from random import Random
from typing import Any, get_args

import msgspec
import pytest

from app.stream import tags
from app.stream.events import CallArguments, CallStart, Done, Event, Finish, Retract, Text
from app.stream.hermes import MAX_CALL_CHARS
from app.stream.holdback import FILTERED, UNBOUNDED
from app.stream.open_thoughts import DEEPEST
from app.stream.pipeline import Pipeline
from app.stream.schema import Tools
from app.stream.segmenter import Segmenter
from app.stream.tags import _ORDER, ALL_CALL_FAMILIES, ALL_FAMILIES, CALL_FAMILIES, FAMILIES, Role, tag_set
from tests.app.stream.wire import (
    TOOLS,
    Heard,
    chunk,
    event,
    heard_streaming,
    heard_through,
    policy,
    run,
    stream,
)
from tests.looped import looped
from tests.scale import scaled

Part = str | tuple[str, str]
"""Content, or (reasoning, content) of the fields in turn."""

CUTS = scaled((None, 1, 3, 20), (None, 1, 2, 3, 7, 20, 40))


@dataclass
class Case:
    """What an engine said, and what is heard of it."""

    name: str
    said: tuple[dict[str, str] | str, ...]
    content: str = ""
    calls: tuple[str, ...] = ()
    dropped: int = 0
    error: str | None = None
    finish: str = "stop"


def case(name: str, *said: dict[str, str] | str, **more: Any) -> Case:
    return Case(name, said, **more)


def field(text: str) -> dict[str, str]:
    return {"reasoning": text}


NATIVE: dict[str, Any] = {
    "tool_calls": [
        {"index": 0, "id": "c", "type": "function", "function": {"name": "now", "arguments": "{}"}}
    ]
}
GOOD = '<tool_call>\n{"name": "now", "arguments": {}}\n</tool_call>'
CARD = (
    '<tool_call>{"name": "web_search", "arguments": {"query": "SECRET 4111 <think>1111 SECRET"}}</tool_call>'
)

UNFINISHED_CALLS = (
    "now(x= ", "now({", "now {'x': 1", "[now(1), ", "Action: now\nAction Input: ", 'Action: now\nAction Input: {"x": 1', 'Action: now\nAction Input: {"x": "',
    "<tool_call><function=now><parameter=x>", '<tool_call>{"name": "now", "arguments": {"x": "', '[TOOL_CALLS]now{"x": "', '{"name": "now", "arguments": {"x": "',
)  # fmt: skip

OBJECT = '{"name": "now", "arguments": {"x": "SECRET"}}'
INTERRUPTED_CALLS = (
    *((f"<tool_call>{OBJECT}</tool_call>", "", 11), (f"<tools>\n{OBJECT}\n</tools>", "", 7), (f"[TOOL_CALLS][{OBJECT}]", "", 12), (f"<|python_tag|>{OBJECT}<|eom_id|>", "", 14)),
    ("<tool_call><function=now><parameter=x>SECRET</parameter></function></tool_call>", "", 12), ("<function=now>\n<parameter=x>\nSECRET\n</parameter>\n</function>", "", 1),
    ('[TOOL_CALLS]now[ARGS]{"x": "SECRET"}', "", 12), (f"[{OBJECT}]", "\n", 1), (OBJECT, "\n", 1), ('now(x="SECRET")', "\n", 1), ('now {"x": "SECRET"}', "\n", 1), ('[now(x="SECRET")]', "\n", 1),
    ('Action: now\nAction Input: {"x": "SECRET"}', "\n", 1), ("<now><x>SECRET</x></now>", "", 2), ("```tool_code\nSECRET\n```\n", "", 4), ('functions.now:0<|tool_call_argument_begin|>{"x": "SECRET"}<|tool_call_end|>', "", 1),
)  # fmt: skip
"""Calls, what ends their line, and the first place where one can be interrupted."""

THOUGHTS = [
    case("nested", "<think>SECRET<think>SECRET</think>SECRET</think>Hi.", content="Hi."),
    case("nested in three families", "<think>SECRET[THINK]SECRET<seed:think>SECRET</seed:think>SECRET[/THINK]SECRET</think>Hi.", content="Hi."),
    case("a foreign closer inside a tool's answer", "<think><tool_response>SECRET</think>SECRET</tool_response>SECRET</think>Hi.", content="Hi."),
    case("the same the other way round", "<tool_response>SECRET<think>SECRET</tool_response>SECRET</think>SECRET</tool_response>Hi.", content="Hi."),
    case("a foreign closer inside a nested thought", "<think>SECRET[THINK]SECRET</think>SECRET[/THINK]SECRET</think>Hi.", content="Hi."),
    case("one of the same kind", "<think>SECRET<thinking>SECRET</think>SECRET</thinking>SECRET</think>Hi.", content="Hi."),
    case("one that nothing opened", "<think>SECRET[/THINK]SECRET</tool_response>SECRET</think>Hi.", content="Hi."),
    case("one of the same kind that nothing opened, in a nested thought", "<think>SECRET<thinking>SECRET</reasoning>SECRET</thinking>SECRET</think>Hi.", content="Hi."),
    case("three families in a knot", "<think>a[THINK]b<tool_result>c[/THINK]SECRET</think>SECRET</tool_result>SECRET[/THINK]SECRET</think>Hi.", content="Hi."),
    case("a tag of the same kind ends the only thought", "<thinking>SECRET</think>Hi. <reasoning>SECRET</thinking>Bye.", content="Hi. Bye."),
    case("a tool's answer that ends by another name", "<tool_response>SECRET</tool_result>Hi.", content="Hi."),
    case("a call in a thought that never ends", f"Hi.<think>SECRET{GOOD}", content="Hi.", calls=("now",), finish="tool_calls"),
    case("a call that a foreign closer shows to be thought", f"Hi.<think>SECRET{GOOD}[/THINK]SECRET", content="Hi."),
    case("one in the engine's field", field(f"SECRET<|channel>thought\nSECRET{GOOD}</think>SECRET"), "Hi.", content="Hi."),
    case("a foreign closer in a tool's answer that never ends", "Hi.<tool_response>SECRET</think>SECRET", content="Hi."),
    case("an answer's header in a thought of other tags", "<think>SECRET<|channel|>final<|message|>SECRET<|end|>SECRET</think>Hi.", content="Hi."),
    case("an answer's header ends all thoughts of its kind", "<|channel|>analysis<|message|>SECRET<|think|>SECRET<|channel|>final<|message|>Hi.", content="Hi."),
    case("an end of a message in a thought of other tags", "<think>SECRET<|end|>SECRET</think>Hi.", content="Hi."),
    case("nested thrice", "<think>a<think>b<think>c</think>SECRET</think>SECRET</think>Hi.", content="Hi."),
    case("an orphan closer at the start", "SECRET</think>Hi.", content="Hi."),
    case("an orphan closer behind a thought", "<think>a</think>SECRET</think>Hi.", content="Hi."),
    case("an orphan closer behind two thoughts", "<think>a</think>SECRET<think>b</think>SECRET</think>Hi.", content="Hi."),
    case("an orphan closer behind speech and a thought", "SECRET<think>a</think>SECRET</think>Hi.", content="Hi."),
    case("two orphan closers", "SECRET</think>SECRET</think>Hi.", content="Hi."),
    case("an orphan closer behind reasoning in its field", field("SECRET"), "SECRET</think>Hi.", content="Hi."),
    case("an orphan closer behind text and reasoning", "SECRET", field("SECRET"), "SECRET</think>Hi.", content="Hi."),
    case("an orphan closer behind a call within a thought", "SECRET " + GOOD + " SECRET</think>Hi.", content="Hi."),
    case("an orphan closer of another family", "SECRET[/THINK]Hi.", content="Hi."),
    case("a closing tag split over both fields", field("SECRET</thi"), "nk>Hi.", content="Hi."),
    case("a closing tag split after its bracket", field("SECRET<"), "/think>Hi.", content="Hi."),
    case("a closing tag split before its end", field("SECRET</think"), ">Hi.", content="Hi."),
    case("an opening tag split over both fields", "<thi", field("nk>SECRET"), "Hi.", content="Hi."),
    case("an opening tag split the other way", field("SECRET<thi"), "nk>SECRET</think>Hi.", content="Hi."),
    case("a tag split over three fields", field("SECRET</"), "thi", field("nk>SECRET"), "Hi.", content="Hi."),
    case("a call's tag split over both fields", field("SECRET<tool_"), 'call>{"name": "now", "arguments": {}}</tool_call>', calls=("now",)),
    case("no tag at the seam", field("SECRET <"), "b is less.", content="b is less."),
    case("closing tags left in the reasoning field", field("SECRET</think>SECRET"), "Hi.", content="Hi."),
    case("an empty thought", "<think></think>Hi.", content="Hi."),
    case("an empty thought in one tag", "<think/>Hi.", content="Hi."),
    case("a thought that never ends", "Hi.<think>SECRET", content="Hi."),
    case("a thought inside which another one begins that never ends", "Hi.<think>SECRET<think>SECRET</think>SECRET", content="Hi."),
    case("a native call inside a thought", "<think>SECRET", NATIVE, "SECRET</think>Hi.", content="Hi.", calls=("now",)),
    case("prose with a bracket", "[1] is a note, a < b, and [THE END].", content="[1] is a note, a < b, and [THE END]."),
    case("prose about a quoted tag", "Write `<think>` and `[THINK]`.", content="Write `<think>` and `[THINK]`."),
    case("only a thought", "<think>SECRET</think>", error=FILTERED),
    case("only a thought that never ends", "<think>SECRET", error=FILTERED),
    case("only what an orphan closer takes back", "SECRET</think>", error=FILTERED),
    case("only a thought, cut", "<think>SECRET", finish="length"),
]  # fmt: skip

DETAILS = '<details type="reasoning" done="true" duration="3">'
THOUGHTS += [
    case("a thought in details", f"{DETAILS}\n<summary>Thought for 3 seconds</summary>\n> SECRET\n</details>\nHi.", content="Hi."),
    case("details with its attributes in another order", "<details done='true' type='reasoning'>SECRET</details >Hi.", content="Hi."),
    case("details with an attribute without a value", "<details open type = reasoning>SECRET</DETAILS>Hi.", content="Hi."),
    case("details of calls", '<details type="tool_calls" done="true" name="f">SECRET</details>Hi.', content="Hi."),
    case("details escaped", "&lt;details type='reasoning'&gt;SECRET&lt;/details&gt;Hi.", content="Hi."),
    case("other details in a thought in details", f"{DETAILS}SECRET<details open><summary>SECRET</summary>SECRET</details>SECRET</details>Hi.", content="Hi."),
    case("a thought in details in details", f"<details>a{DETAILS}SECRET</details>b</details>c", content="<details>ab</details>c"),
    case("details in a thought of another family", "<think>SECRET<details>SECRET</details>SECRET</think>Hi.", content="Hi."),
    case("details split over both fields", field("SECRET <det"), "ails>a</details>", content="<details>a</details>"),
    case("details in the engine's field", field("<details>SECRET</details>SECRET"), "Hi.", content="Hi."),
    case("details that are text", "<details>\n<summary>More</summary>\na\n</details>\nHi.", content="<details>\n<summary>More</summary>\na\n</details>\nHi."),
    case("details of another type", '<details type="reasonings">a</details><details data-type="reasoning">b</details>', content='<details type="reasonings">a</details><details data-type="reasoning">b</details>'),
    case("the end of details at the end", "a</details>", content="a</details>"),
    case("details at the end", "a<details>", content="a<details>"),
    case("a role for the thought", "<|im_start|>think\nSECRET<|im_end|>\n<|im_start|>assistant\nHi.<|im_end|>", content="Hi."),
    case("roles for the thought and for the answer", "<|im_start|>thinking\nSECRET<|im_start|>answer\nHi.", content="Hi."),
    case("a role for the thought behind speech", "One <|im_start|>reasoning\nSECRET<|im_end|>two.", content="One two."),
    case("roles in a thought of another family", "<think>SECRET<|im_start|>answer\nSECRET<|im_end|>SECRET</think>Hi.", content="Hi."),
    case("many spaces before the last bracket", f"<think{' ' * 64}>SECRET</think{chr(10) * 64}>Hi.", content="Hi."),
    case("many spaces before an attribute", f"<think{' ' * 64}type='x'>SECRET</think>Hi.", content="Hi."),
]  # fmt: skip

LOST = '<|constrain|>json<|message|>{"query": "SECRET"}<|call|>'
THOUGHTS += [
    case("a header in its order", f"Hi.<|channel|>commentary to=functions.now {LOST}", content="Hi."),
    case("a header that lost its opening token", f"commentary to=functions.now {LOST}Hi.", content="Hi."),
    case("one that lost its channel", f"to=functions.now {LOST}Hi.", content="Hi."),
    case("one that lost its channel, in a second line", f"Hi.\nto=functions.now {LOST}", content="Hi.\n"),
    case("one whose channel comes behind the recipient", f"to=functions.now<|channel|>commentary {LOST}Hi.", content="Hi."),
    case("one without a constraint", "to=functions.now json<|message|>{SECRET}<|call|>Hi.", content="Hi."),
    case("one of which the recipient is lost, too", "commentary json<|message|>SECRET<|call|>Hi.", content="Hi."),
    case("a header that is followed by spaces", "<|im_start|> think\nSECRET<|im_end|><|im_start|>\nassistant\nHi.", content="Hi."),
    case("one of a call that nobody declared", f"commentary to=browser.search {LOST}Hi.", content="Hi."),
    case("one of which a constraint is left", f"Hi. {LOST}", content="Hi. "),
    case("one behind a thought", f"<think>SECRET</think>to=functions.now {LOST}Hi.", content="Hi."),
    case("one that is cut off", "Hi.\ncommentary to=functions.now <|constr", content="Hi.\n", finish="length"),
    case("Kimi's without its outer tokens and its number", 'functions.now<|tool_call_argument_begin|>{"query": "SECRET"}<|tool_call_end|>Hi.', content="Hi.", dropped=1),
    case("DeepSeek's without its outer tokens", 'function<｜tool▁sep｜>now\n```json\n{"query": "SECRET"}\n```<｜tool▁call▁end｜>Hi.', content="Hi.", dropped=1),
    case("lines that begin as a header does", "to\ncommentary to=you\nanalysis to follow\nassistant\nto=5 <b\nfunctions.now", content="to\ncommentary to=you\nanalysis to follow\nassistant\nto=5 <b\nfunctions.now"),
    case("words between a tag and its end, in a line of their own", "Hi.\n<tool_call> SECRET words </tool_call>", content="Hi.\n", dropped=1),
    case("words between special tokens", "<|tool_call|> SECRET words <|/tool_call|>Hi.", content="Hi.", dropped=1),
    case("prose about both tags", "Use <tool_call> and then </tool_call>, so.", content="Use <tool_call> and then </tool_call>, so."),
    case("prose about two pairs", "First <tool_call> or <tool_calls>, last </tool_calls> or </tool_call>.", content="First <tool_call> or <tool_calls>, last </tool_calls> or </tool_call>."),
    case("an end that belongs to no mention", "Use <tool_calls> so.</tool_call>", content="Use <tool_calls> so."),
    case("a mention, a call and an end", f"Use <tool_call> so.\n{GOOD}</tool_call>", content="Use <tool_call> so.\n", calls=("now",), finish="tool_calls"),
    case("an element with the name of a tool", "Hi.<web_search><query>SECRET</query></web_search>", content="Hi.", dropped=1),
    case("the same with spaces and attributes", "Hi.\n<web_search id='1'>\n  <query>SECRET</query>\n</ web_search >", content="Hi.\n", dropped=1),
    case("an object in an element with the name of a tool", 'Hi. <web_search>{"query": "SECRET"}</web_search>', content="Hi. ", dropped=1),
    case("words in one", "<web_search>SECRET words</web_search>Hi.", content="Hi.", dropped=1),
    case("words apart in one that begins its line", "<web_search> SECRET words </web_search>Hi.", content="Hi.", dropped=1),
    case("an empty one", "Hi.<now/>", content="Hi.", dropped=1),
    case("one that never ends", "Hi.<web_search><query>SECRET", content="Hi.", dropped=1),
    case("half of one", "Hi.<web_sea", content="Hi."),
    case("elements of other names", "<weather><city>a</city></weather> <nowhere> <n", content="<weather><city>a</city></weather> <nowhere> <n"),
    case("prose about one", "Use `<web_search>` or <web_search> and </web_search>.", content="Use `<web_search>` or <web_search> and </web_search>."),
    case("one in a fence", "```\n<web_search><query>a</query></web_search>\n```\n", content="```\n<web_search><query>a</query></web_search>\n```\n"),
]  # fmt: skip

SPELLINGS = ("<Think>", "<think >", "< think>", "<think\n>", "<THINK>", '<think type="x">')
CLOSINGS = ("</Think>", "</think >", "</ think>", "< / think >", "</think\n>", "</THINK>")
THOUGHTS += [
    case(f"spelt {o!r}", f"{o}SECRET{c}Hi.", content="Hi.") for o, c in zip(SPELLINGS, CLOSINGS, strict=True)
]
THOUGHTS += [
    case(f"the tags of {name}", f"{family.opens[0]}SECRET{family.closes[0]}Hi.", content="Hi.")
    for name, family in FAMILIES.items()
    if family.closes
]
OF_EACH_FAMILY = [
    one
    for name, family in FAMILIES.items()
    for o, c in zip(family.opens, family.closes, strict=not family.elements)
    for one in (
        case(f"{o} nested in itself, of {name}", f"{o}SECRET{o}SECRET{c}SECRET{c}Hi.", content="Hi."),
        case(f"{o} in a common thought", f"<think>SECRET{o}SECRET{c}SECRET</think>Hi.", content="Hi."),
        case(
            f"{o} behind speech, twice", f"One {o}SECRET{c}two {o}SECRET{c}three.", content="One two three."
        ),
        case(f"an orphan closer {c}", f"SECRET{c}Hi.", content="Hi."),
        case(f"{c} split over both fields", field(f"SECRET{c[:3]}"), f"{c[3:]}Hi.", content="Hi."),
        case(f"{o} that never ends", f"Hi.{o}SECRET", content="Hi."),
        case(f"prose that quotes {o}", f"Write `{o}` and `{c}`.", content=f"Write `{o}` and `{c}`."),
        case(f"{o} begun and no tag", f"It is {o[:-1]}.", content=f"It is {o[:-1]}."),
    )
]
OF_EACH_FAMILY += [
    case(f"{o} with wide bars", f"{o}SECRET{c}Hi.".replace("|", "\uff5c"), content="Hi.")
    for family in FAMILIES.values()
    for o, c in zip(family.opens, family.closes, strict=not family.elements)
    if "|" in o
]
OF_EACH_FAMILY += [
    case(f"what a tool answered in {o}", f"{o}SECRET{c}Hi.", content="Hi.")
    for family in FAMILIES.values()
    for o, c in zip(family.answers, family.answer_ends, strict=True)
]
THOUGHTS += OF_EACH_FAMILY
IN_A_THOUGHT = {
    "hermes": '<tool_call>\n{"name": "now", "arguments": {"x": "%s SECRET"}}\n</tool_call>',
    "hermes, arguments first": '<tool_call>{"arguments": {"x": ["%s", {"y": "SECRET"}], "z": 1}, "name": "now"}</tool_call>',
    "hermes, in a key": '<tool_call>{"name": "now", "arguments": {"%s": "SECRET"}}</tool_call>',
    "hermes behind an escaped quote": '<tool_call>{"name": "now", "arguments": {"x": "\\"SECRET\\" %s \\""}}</tool_call>',
    "hermes, encoded twice": '<tool_call>{"name": "now", "arguments": "{\\"x\\": \\"%s\\"}"}</tool_call>',
    "single quotes": "<tool_call>{'name': 'now', 'arguments': {'x': '%s', 'y': True}}</tool_call>",
    "escaped quotes": '<tool_call>{\\"name\\": \\"now\\", \\"arguments\\": {\\"x\\": \\"%s\\"}}</tool_call>',
    "no quotes around keys": "<tool_call>{name: 'now', arguments: {x: '%s'}}</tool_call>",
    "no end tag": '<tool_call>{"name": "now", "arguments": {"x": "%s"}}\n',
    "broken behind the argument": '<tool_call>{"name": "now", "arguments": {"x": "%s"}, SECRET}</tool_call>',
    "the second of two": GOOD + '\n<tool_call>{"name": "now", "arguments": {"x": "%s"}}</tool_call>',
    "an array": '<tool_calls>[{"name": "now", "arguments": {"x": "%s"}}]</tool_calls>',
    "Mistral's": '[TOOL_CALLS]now[ARGS]{"x": "%s"}',
    "a function": '<|python_tag|>now(x="%s", y="SECRET")<|eom_id|>',
    "XML": "<tool_call>\n<function=now>\n<parameter=x>\n5\n</parameter>\n<parameter=y>\n%s\nSECRET\n</parameter>\n</function>\n</tool_call>",
    "XML without its wrapper": "<function=now><parameter=x>%s</parameter></function>",
    "XML without the parameter's end": "<tool_call><function=now><parameter=x>%s</tool_call>",
    "XML that goes on without it": "<function=now><parameter=x>%s<parameter=y>SECRET</parameter></function>",
    "JSON behind a function": '<function=now>{"x": "%s"}</function>',
    "escaped tags": '&lt;tool_call&gt;{"name": "now", "arguments": {"x": "%s"}}&lt;/tool_call&gt;',
    "no tag": '{"name": "now", "arguments": {"x": "%s"}}',
    "GLM's": "<tool_call>now\n<arg_key>x</arg_key>\n<arg_value>%s\nSECRET</arg_value>\n</tool_call>",
    "GLM's, in a key": "<tool_call>now <ARG_KEY>%s</ARG_KEY></tool_call>",
    "GLM's, with brackets in the value": "<tool_call>now<arg_value>a < b &amp; <c> %s <arg_value>SECRET</arg_value></c></arg_value></tool_call>",
    "GLM's, escaped": "&lt;tool_call&gt;now&lt;arg_value&gt;%s SECRET&lt;/arg_value&gt;&lt;/tool_call&gt;",
    "GLM's, full-width": "\uff1ctool_call\uff1enow\uff1carg_value\uff1e%s SECRET\uff1c/arg_value\uff1e\uff1c/tool_call\uff1e",
    "GLM's without the value's end": "<tool_call>now<arg_value>%s SECRET</tool_call>",
    "LongCat's": "<longcat_tool_call>now<longcat_arg_value>%s SECRET</longcat_arg_value></longcat_tool_call>",
    "DSML": '<\uff5cDSML\uff5cinvoke name="now">\n<\uff5cDSML\uff5cparameter name="x" string="true">%s\nSECRET</\uff5cDSML\uff5cparameter>\n</\uff5cDSML\uff5cinvoke>',
    "MiniMax's": '<minimax:tool_call><invoke name="now"><parameter name="x">%s SECRET</parameter></invoke></minimax:tool_call>',
    "XML with names as attributes": '<function name="now"><param name="x">%s SECRET</param></function>',
    "Kimi K3's": '<|open|>call tool="now"<|sep|><|open|>argument key="x"<|sep|>%s SECRET<|close|>argument<|sep|><|close|>call<|sep|>',
    "Gemma 4's": '<|tool_call>call:now{x:[<|"|>a<|"|>,<|"|>%s\n"SECRET<|"|>]}<tool_call|>',
    "FunctionGemma's": "<start_function_call>call:now{x:<escape>%s SECRET<escape>}<end_function_call>",
    "quotes as HTML writes them": "<tool_call>{&quot;x&quot;: &#34;%s SECRET&#34;, &amp;quot;y&amp;quot;: &apos;SECRET&apos;}</tool_call>",
    "a function without a tag": 'now(y="", x="%s", z=[1])',
    "functions in one another": "so: print(await(now('%s SECRET')))",
    "a string over lines": '[now(x="""%s\n"SECRET""")]',
    "a code fence": '\n```json\n<tool_call>{"name": "now", "arguments": {"x": "%s"}}</tool_call>\n```\n',
}  # fmt: skip
"""Calls within a thought; `%s` is in an argument."""
IN_ARGUMENTS = [
    *(
        case(f"a closing tag in an argument: {name}", f"<think>SECRET {call % '</think>'} SECRET</think>Hi.", content="Hi.")
        for name, call in IN_A_THOUGHT.items()
    ),
    *(
        case(f"{c} in an argument in {how}", f"{o}SECRET {IN_A_THOUGHT[how] % c} SECRET{c}Hi.", content="Hi.")
        for how in ("hermes", "XML")
        for family in FAMILIES.values()
        for o, c in zip(family.opens + family.answers, family.closes + family.answer_ends, strict=not family.elements)
    ),
    *(
        case(f"{said!r} in an argument", f"<think>SECRET {IN_A_THOUGHT['hermes'] % said} SECRET</think>Hi.", content="Hi.")
        for said in ("<think>", "<think>SECRET</think>", "</think></think>", "[THINK]</think>", "</ THINK >", "&lt;/think&gt;", "</tool_call></think>", "<|end|>")
    ),
    *(
        case(f"the same, with an engine that ends the thought there: {name}", field("SECRET " + call.partition("%s")[0]), call.partition("%s")[2] + " SECRET</think>Hi.", content="Hi.")
        for name, call in IN_A_THOUGHT.items()
    ),
    case("a closing tag in an argument that is split over both fields", field('SECRET <tool_call>{"name": "now", "arguments": {"x": "</th'), 'ink>"}}</tool_call> SECRET</think>Hi.', content="Hi."),
    case("a closing tag in an argument and in a nested thought", f"<think>SECRET<thinking>{IN_A_THOUGHT['hermes'] % '</thinking>'}SECRET</thinking>SECRET</think>Hi.", content="Hi."),
    case("a second thought behind it", f"<think>{IN_A_THOUGHT['XML'] % '</think>'}</think>Hi. <think>{IN_A_THOUGHT['hermes'] % '</think>'}</think>Bye.", content="Hi. Bye."),
    case("a call in a thought that only its argument closes", f"Hi.<think>SECRET {IN_A_THOUGHT['hermes'] % '</think>'}SECRET", content="Hi.", calls=("now",), finish="tool_calls"),
    case("one that is cut off behind its argument", 'Hi.<think>SECRET <tool_call>{"name": "now", "arguments": {"x": "</think>", "y": "SECRET', content="Hi.", dropped=1),
]  # fmt: skip
BROKEN_OFF = [
    case(f"a thought that {name}", f"<think>SECRET {said}</think>{answer}", content=answer.strip("\n"))
    for name, said in {
        "mentions a tag": "I could write <tool_call>, but no.",
        "mentions a tag at its end": "I could write <tool_call>",
        "mentions tags in XML": "It is <function=now>, then <parameter=x>, then",
        "begins a call": '<tool_call>{"name": "now", "arguments": {"x": "SECRET',
        "begins one in single quotes": "<tool_call>{'name': 'now', 'arguments': {'x': 'SECRET",
        "begins one in XML": "<tool_call>\n<function=now>\n<parameter=x>\nSECRET",
        "begins JSON": '{"x": "SECRET',
        "begins GLM's form": "<tool_call>now<arg_value>SECRET",
        "begins GLM's form at a tag": "<tool_call>now<arg_va",
        "begins Gemma 4's form": '<|tool_call>call:now{x:<|"|>SECRET',
        "begins a string as HTML writes it": "<tool_call>{&quot;x&quot;: &quot;SECRET",
        "begins a function": 'now(x="SECRET',
        "begins a string over lines": 'now(x="""SECRET',
        "writes prose in brackets": "<tool_call> [now, {it's",
        "holds a whole call": GOOD,
    }.items()
    for answer in ("Hi.", "\n\nHi.\n{a, b}", 'He said "Hi" and "so on".', "It's <b>.", "1, 2: 3} ]", '\n\nSay "} now')
]  # fmt: skip
BROKEN_OFF += [
    case("a thought that breaks off in a call, and a call", f'<think>SECRET {begun}</think>Hi.{GOOD}', content="Hi.", calls=("now",), finish="tool_calls")
    for begun in ('<tool_call>{"name": "now", "arguments": {"x": "SECRET', "<tool_call><function=now><parameter=x>SECRET")
]  # fmt: skip
BROKEN_OFF += [
    case("a thought in the engine's field that breaks off in a call", field("SECRET " + begun), "Hi.</thi", content="Hi.")
    for begun in ('<tool_call>{"name": "now", "arguments": {"x": "SECRET', "<tool_call><function=now><parameter=x>SECRET")
]  # fmt: skip
BROKEN_OFF += [
    case("a native call behind a thought that breaks off in a call", '<think><tool_call>{"name": "now", "arguments": {"x": "SECRET</think>Hi.', NATIVE, content="Hi.", calls=("now",)),
    case("and reasoning", '<think><tool_call>{"name": "now", "arguments": {"x": "SECRET</think>Hi.', field("SECRET"), content="Hi."),
]  # fmt: skip
THOUGHTS += IN_ARGUMENTS + BROKEN_OFF
FINAL = "<|start|>assistant<|channel|>final<|message|>"
THOUGHTS += [
    case("harmony", "<|channel|>analysis<|message|>SECRET<|end|>" + FINAL + "Hi.<|return|>", content="Hi."),
    case("harmony with its first header", "<|start|>assistant<|channel|>analysis<|message|>SECRET<|end|>" + FINAL + "Hi.", content="Hi."),
    case("harmony whose header the prompt wrote", "SECRET<|end|>" + FINAL + "Hi.<|return|>", content="Hi."),
    case("harmony without the end of its thought", "<|channel|>analysis<|message|>SECRET" + FINAL + "Hi.", content="Hi."),
    case("harmony with two thoughts", "<|channel|>analysis<|message|>SECRET<|end|><|start|>assistant<|channel|>analysis<|message|>SECRET<|end|>" + FINAL + "Hi.", content="Hi."),
    case("harmony with a call", "<|channel|>commentary to=functions.now <|constrain|>json<|message|>SECRET<|call|>" + FINAL + "Hi.", content="Hi."),
    case("harmony's answer alone", "<|channel|>final<|message|>Hi.<|return|>", content="Hi."),
    case("harmony's answer as JSON", '<|channel|>final <|constrain|>json<|message|>{"a": 1}', content='{"a": 1}'),
    case("OpenThinker's answer", "<|begin_of_thought|>SECRET<|end_of_thought|>\n\n<|begin_of_solution|>Hi.<|end_of_solution|>", content="Hi."),
    case("OpenThinker's answer without a thought", "<|begin_of_solution|>Hi.<|end_of_solution|>", content="Hi."),
    case("Kimi K3's answer", "<|open|>think<|sep|>SECRET<|close|>think<|sep|><|open|>response<|sep|>Hi.<|close|>response<|sep|>", content="Hi."),
    case("Kimi K3's message", "<|open|>response<|sep|>Hi.<|close|>response<|sep|><|close|>message<|sep|><|end_of_msg|>", content="Hi."),
    case("Solar's answer", "<|think|>SECRET<|end|><|begin|>assistant<|content|>Hi.<|flush|>", content="Hi."),
    case("Solar's call behind its answer", '<|content|>Hi.<|end|><|begin|>assistant<|tool_calls|><|tool_call:begin|>0<|tool_call:name|>now<|tool_call:args|>{"x": "SECRET"}<|tool_call:end|><|calls|>', content="Hi."),
    case("Inkling's answer", "<|message_model|><|content_thinking|>SECRET<|end_message|><|message_model|><|content_text|>Hi.<|end_message|><|content_model_end_sampling|>", content="Hi."),
    case("Inkling's thought that the prompt began", "<|content_thinking|>SECRET<|end_message|><|content_text|>Hi.<|end_message|>", content="Hi."),
    case("a tool's answer that the model made up", '<tool_response>\n{"x": "SECRET"}\n</tool_response>\nHi.', content="Hi."),
    case("an end of a tool's answer that never began", "Hi.\n</tool_response>", content="Hi.\n"),
    case("one in a thought ends nothing", "<think>a</tool_response> SECRET</think>Hi.", content="Hi."),
    case("a tool's answer in a thought", "<think>a<tool_response>SECRET</tool_response>SECRET</think>Hi.", content="Hi."),
    case("a tool's answer behind a native call", NATIVE, "<|tool_response>SECRET<tool_response|>Hi.", content="Hi.", calls=("now",)),
    case("Gemma 4's answer", "<|channel>thought\nSECRET<channel|>Hi.", content="Hi."),
    case("an orphan closer, OpenThinker's, before its answer", "SECRET<|end_of_thought|>\n<|begin_of_solution|>Hi.", content="Hi."),
    case("cohere's answer", "<|START_THINKING|>SECRET<|END_THINKING|><|START_RESPONSE|>Hi.<|END_RESPONSE|>", content="Hi."),
]  # fmt: skip


def bad(name: str, body: str, end: str = "</tool_call>", **more: Any) -> Case:
    """A block that is no call, between two sentences."""
    return case(
        f"a call {name}", f"Hi. <tool_call>{body}{end} Bye.", **{"content": "Hi. Bye.", "dropped": 1, **more}
    )


CALLS = [
    bad("without a name", '{"arguments": {"q": "SECRET"}}'),
    bad("with an empty name", '{"name": "", "arguments": {"q": "SECRET"}}'),
    bad("with a number for a name", '{"name": 7, "arguments": {"q": "SECRET"}}'),
    bad("as an array", '[{"name": "now", "arguments": {"q": "SECRET"}}]'),
    bad("as an array behind a line end", '\n[{"name": "now", "arguments": {"q": "SECRET"}}]\n'),
    bad("in single quotes", "{'name': 'now', 'arguments': {'q': 'SECRET'}}"),
    bad("in a fence", '\n```json\n{"name": "now", "arguments": {"q": "SECRET"}}\n```\n'),
    bad("with a think tag before its name", '{<think>SECRET</think>"name": "now", "arguments": {}}'),
    bad("behind a thought", '<think>SECRET</think>{"name": "now", "arguments": {}}'),
    bad("without quotes", "{name: now, arguments: {q: SECRET}}"),
    bad("as a Python call", 'now(q="SECRET")'),
    bad("as a name and JSON", 'now{"q": "SECRET"}'),
    bad("as a name and keys", "\nnow\n<arg_key>q</arg_key><arg_value>SECRET</arg_value>\n"),
    bad("as a bare name", "now"),
    bad("as a string", '"SECRET"'),
    bad("of words", "the SECRET plan"),
    bad("of words on a line of their own", "\nthe SECRET plan\n"),
    bad("of words and a quote", "it's the SECRET, and more"),
    bad("of words, ended by a part's tag", "the SECRET</parameter></tool_call>", ""),
    bad("of words in the function's own tag", "the SECRET", "</function_call>"),
    bad("of words and no end, then a good one", f"the words {GOOD}", "", calls=("now",), content="Hi. <tool_call>the words Bye.", dropped=0),
    case("prose behind a tag, and its end far away", f"A <tool_call>tag {'word ' * 110}and </tool_call>.", content=f"A <tool_call>tag {'word ' * 110}and </tool_call>."),
    case("prose behind a tag", "A <tool_call>tag is no call.", content="A <tool_call>tag is no call."),
    case("prose about both tags", "It is <tool_call>, then JSON, then a closing tag.", content="It is <tool_call>, then JSON, then a closing tag."),
    bad("as an invoke tag", '<invoke name="now"><parameter name="q">SECRET</parameter></invoke>'),
    bad("in XML without a body", "<function=now>SECRET</function>"),
    bad("in XML without a name", "<function=>\n<parameter=q>SECRET</parameter></function>"),
    bad("in XML with an odd name", "<function=web search>\n<parameter=q>SECRET</parameter></function>"),
    bad("with its end tag inside a string", '[{"q": "SECRET</tool_call>SECRET"}]'),
    *(
        case(f"the rest of a call whose beginning the engine took: {name}", f"Hi. {said} Bye.", content="Hi. Bye.", dropped=said.count("SECRET"))
        for name, said in {
            "GLM's": "<arg_key>SECRET</arg_key>\n<arg_value>SECRET</arg_value>\n</tool_call>",
            "a value of GLM's": "<arg_value>SECRET <b></arg_value></tool_call>",
            "LongCat's": "<longcat_arg_value>SECRET</longcat_arg_value></longcat_tool_call>",
            "DSML": '<\uff5cDSML\uff5cparameter name="x" string="true">SECRET</\uff5cDSML\uff5cparameter>\n</\uff5cDSML\uff5cinvoke>\n</\uff5cDSML\uff5cfunction_calls>',
        }.items()
    ),
    case("prose about a tag of a part", "The <arg_value> tag, and `<arg_key>`.", content="The tag, and `<arg_key>`."),
    bad("with a whole number of faults", '{"name": "other", "arguments": {"q": SECRET}}'),
    bad("whose arguments are no object", '{"name": "now", "arguments": ["SECRET"]}'),
    bad("and more in its wrapper", '{"name": "now", "arguments": {}} SECRET', calls=("now",), dropped=0, content="Hi. Bye."),
    case("a call that is cut off", 'Hi. <tool_call>{"name": "web_se', content="Hi. ", dropped=1),
    case("an array that is cut off", 'Hi. <tool_call>[{"name": "SECRET', content="Hi. ", dropped=1),
    case("a broken call, then a good one", "<tool_call>{'SECRET'}</tool_call>\n" + GOOD, calls=("now",), dropped=1),
    case("a broken call without its end, then a good one", "<tool_call>{'SECRET'}\n" + GOOD, calls=("now",), dropped=1),
    case("a call in a fence", "Hi.\n```json\n" + GOOD.replace("{}", '{"q": "SECRET"}') + "\n```\nBye.", content="Hi.\n```json\n```\nBye.", dropped=1),
    case("a call in a fence without its end", 'Hi.\n```\n<tool_call>{"name": "SECRET"\n```\nBye.', content="Hi.\n```\n```\nBye.", dropped=1),
    case("a call in a fence behind a thought", "Hi.", "<think>a</think>", "\n```json\n" + GOOD.replace("{}", '{"q": "SECRET"}') + "\n```\n", content="Hi.```json\n```\n", dropped=1),
    case("a call in a fence in a thought that never ends", "Hi.<think\n>a\n```json\n" + GOOD + "\n```\n", content="Hi."),
    case("a function in a fence", "~~~\n<function=now><parameter=q>SECRET</parameter></function>\n~~~\n", content="~~~\n~~~\n", dropped=1),
    case("a bare function with JSON", 'Hi. <function=now>{"q": "SECRET"}</function> Bye.', content="Hi. Bye.", dropped=1),
    case("an orphan end behind a native call", NATIVE, "\n</tool_call>", calls=("now",)),
    case("a brace and an orphan end behind a native call", NATIVE, "}\n</tool_call>\nHi.", content="Hi.", calls=("now",)),
    case("orphan ends in speech", "Hi.</tool_call></function></parameter> Bye.", content="Hi. Bye."),
    case("orphan ends behind a native call, spelt oddly", NATIVE, "</Tool_Call >\n</function>\n", calls=("now",)),
    case("only a broken call", "<tool_call>{'SECRET'}</tool_call>", dropped=1, error=FILTERED),
    case("only a native call without a name", {"tool_calls": [{"index": 0, "function": {"arguments": '{"q": "SECRET"}'}}]}, error=FILTERED),  # type: ignore[dict-item]
    case("only an orphan end", "</tool_call>", error=FILTERED),
    case("prose about a tag", "Use the <tool_call> tag.", content="Use the <tool_call> tag."),
    case("prose about a tag at the end", "It is <tool_call>", content="It is <tool_call>"),
    case("prose about a tag and a colon", "The <tool_call> tag: it wraps.", content="The <tool_call> tag: it wraps."),
    case("prose about quoted tags", "`<tool_call>` and `</tool_call>`.", content="`<tool_call>` and `</tool_call>`."),
    case("prose about a function", "The <function= part begins it.", content="The <function= part begins it."),
    case("a think tag in an argument", '<tool_call>{"name": "web_search", "arguments": {"query": "<think>x</think>"}}</tool_call>', calls=("web_search",)),
    case("a think tag in an XML value", "<tool_call><function=web_search><parameter=query>\n[THINK]x\n</parameter></function></tool_call>", calls=("web_search",)),
    case("an open think tag in an argument", CARD, calls=("web_search",)),
    case("text behind a call that forgot its end", '<tool_call>{"name": "now", "arguments": {}} Bye.', content="Bye.", calls=("now",)),
    case("a call that breaks after it began", 'Hi. <tool_call>{"name": "web_search", "arguments": {"query": "a"}, <think>SECRET</think>}</tool_call>', content="Hi. ", dropped=1),
    case("a call that breaks, and nothing else", '<tool_call>{"name": "web_search", "arguments": {"query": "a"}, <think>SECRET</think>}</tool_call>', dropped=1, error="reply_fully_filtered"),
    case("the rest of a call behind a native one", '<tool_call>{"name": "now", "arguments": {', NATIVE, '"x": "SECRET"}}</tool_call> Hi.', content="Hi.", calls=("now",), dropped=1),
    case("the rest of a call behind a native one, without its end", '<tool_call>{"name": "now", "arguments": {', NATIVE, '"x": "SECRET"}}', calls=("now",), dropped=1),
    case("the rest of an array behind a native call", '<tool_calls>[{"name": "now", ', NATIVE, '"x": "SECRET"}]</tool_calls>Hi.', content="Hi.", calls=("now",), dropped=1),
    case("the rest of a broken call behind a native one", '<tool_call>{"name": 5, x', NATIVE, 'SECRET}</tool_call>Hi.', content="Hi.", calls=("now",), dropped=1),
    case("the rest of a call behind two native ones", '<tool_call>{"name": "now", "arguments": {', NATIVE, '"x": ', NATIVE, '"SECRET"}}</tool_call>Hi.', content="Hi.", calls=("now", "now"), dropped=1),
    case("the rest of a call behind reasoning", '<tool_call>{"name": "now", "arguments": {', field("hm"), '"x": "SECRET"}}</tool_call>Hi.', content="Hi.", dropped=1),
    case("speech behind a call that a native one interrupts", '<tool_call>{"name": "now", "arguments": {', NATIVE, "Hi there.", content="Hi there.", calls=("now",), dropped=1),
    case("a tag with a native call in it", "<thi", NATIVE, "nk>SECRET</think>Hi.", content="Hi.", calls=("now",)),
    case("a tag with a native call behind its bracket", "<", NATIVE, "think>SECRET</think>Hi.", content="Hi.", calls=("now",)),
    *(
        case(f"a native call in {said} of a call", begun + said, NATIVE, "<think>"[len(said):] + "SECRET</think>Hi.", content="Hi.", calls=("now",), dropped=1)
        for begun, said in product(UNFINISHED_CALLS, ("<thi", "<think>"))
    ),
    *(
        case(f"a native call in a thought of a call that is broken: {begun}", begun + "<think>SECRET", NATIVE, "SECRET</think>Hi.", calls=("now",), dropped=1)
        for begun in ("<tool_call><function=now>", "<now><x>", "```tool_code\n")
    ),
    case("a thought in the rest of a call", '<tool_call>{"name": "now", "arguments": {', NATIVE, '"x": 1}} <think>SECRET</tool_call>SECRET</think></tool_call>Hi.', content="Hi.", calls=("now",), dropped=1),
    case("a thought behind a call that was interrupted", '<tool_call>{"name": "now", "arguments": {', NATIVE, "Hi. <think>SECRET</think>Bye.", content="Hi. Bye.", calls=("now",), dropped=1),
    case("a call's end behind half a tag in its rest", '<tool_call>{"name": "now", "arguments": {', NATIVE, '"SECRET<th', NATIVE, '"}}</tool_', NATIVE, "call>Hi.", content="Hi.", calls=("now",) * 3, dropped=1),
    case("an orphan closer in the rest of a call", '<tool_call>{"name": "now", "arguments": {', NATIVE, "SECRET</think>Hi.", content="Hi.", calls=("now",), dropped=1),
    *(
        case(f"half a think tag {where}, then {by}", f"{before}<inter", what, "nal>SECRET</internal>" + behind, content=heard, calls=("now",) * (by == "a call"))
        for by, what in (("a call", NATIVE), ("reasoning", {"reasoning": "hm"}))
        for where, before, behind, heard in (
            ("in speech", "Hi.", "Bye.", "Hi.Bye."), ("behind a quote", 'It\'s "so"', "Bye.", 'It\'s "so"Bye.'),
            *((("in a thought", "<think>SECRET", "SECRET</think>Bye.", "Bye."),) if by == "a call" else ()),
        )
    ),
    case("half a think tag behind a call, then a call", '[TOOL_CALLS]now[ARGS]{"x": 1}<t', NATIVE, "hink>SECRET</think>Hi.", content="Hi.", calls=("now", "now")),
    case("a thought in the text before reasoning and behind it", "Hi.<think>SECRET", field("hm"), "SECRET<tool_call>SECRET", field("hm"), "SECRET</think>Bye.", content="Hi.Bye."),
    case("a thought in the text that ends in the reasoning", "Hi.<think>SECRET", field("hm</think>"), "Bye.", content="Hi.Bye."),
    case("a template's tag before reasoning", "<think>\n", field("hm"), "Hi.", content="Hi."),
    case("an element with reasoning in it", "See <details ", field("SECRET"), ">x", content="See <details >x"),
    case("an element that begins in the reasoning", field("a <details SECRET"), ">x", content=">x"),
    case("an element with reasoning in quotes", 'See <details a="', field("SECRET"), '">x', content='See <details a="">x'),
    case("a thought between a call and its end", '<tool_call>{"name": "now", "arguments": {}} <think>SECRET</tool_call>SECRET</think>Hi.', content="Hi.", calls=("now",)),
    *(case(f"half a tag in the reasoning that ends a reply, behind {begun!r}", begun, field("<think SECRET"), content=begun) for begun in ("now(", '{"name": "now", ', "<tool_call>A")),
    case("half a call's tag in the reasoning", field('hm <invoke name="no{ SECRET'), "x> y", content="x> y"),
    *(case(f"half of {half!r} before reasoning", half, field("Z"), " a", content=" a") for half in ("<parameter", "<parameter ", "<function")),
    *(
        case(f"the rest of a call that has no end: {rest}", begun, NATIVE, rest, calls=("now",), dropped=1)
        for begun, rest in (('<tool_call>{"name": "now", "arguments": {"x"', ': "SECRET'), ('<tool_call>{"arguments": {"x": "', 'a", "y": "SECRET'), ("<tool_call><function=now><para", "meter=x>SECRET"))
    ),
    case("an element's tag over reasoning in what is dropped", "<tool_call>x\n{SECRET <details", field("SECRET"), ">x so.", content="x so.", dropped=1),
    case("half a tag in each of two interruptions", '<tool_call>{"name": 5, x', field("hm"), "So <thi", field("nking>SECRET"), "Hi.", content="So Hi.", dropped=1),
    case("an array behind a call's tag and reasoning", '"<tool_call>', field("SECRET"), "\n[\n now(\n  x = 'SECRET',\n ),\n]\n", content='"', dropped=1),
    *(
        case(f"{size} characters behind an interrupted call", '<tool_call>{"name": "now", "arguments": {"x": "', NATIVE, "a" * size + '"}} b', content=heard, calls=("now",), dropped=1)
        for size, heard in ((200, "b"), (255, "b"), (257, "a" * 257 + '"}} b'))
    ),
    case("half a tag in both fields", "x W<", field("SECRET</thinkin"), "g>Hi.", content="x W<Hi."),
    case("a tag's attribute before reasoning and behind it", '<details type="reasoning', field("hm"), '" done="true">SECRET</details>Hi.', content="Hi."),
    case("a call's tag with a native call in it", "Hi. <tool_", NATIVE, 'call>{"name": "", "x": "SECRET"}</tool_call>', content="Hi. ", calls=("now",), dropped=1),
    case("half a tag before a native call, and words", "Hi <tool_", NATIVE, "Done.", content="Hi Done.", calls=("now",)),
    case("half a tag before a native call, and nothing", "Hi <tool_", NATIVE, content="Hi ", calls=("now",)),
    case("a bracket before a native call", "a <", NATIVE, " b", content="a < b", calls=("now",)),
    case("a word before a native call that may begin a tag", "a <t", NATIVE, " c", content="a <t c", calls=("now",)),
    case("code behind a special token", '<|python_tag|># look it up\nnow.call(q="SECRET")<|eom_id|>Hi.', content="Hi.", dropped=1),
    case("a magic of a notebook behind a special token", "Hi. <|python_tag|>%pip SECRET", content="Hi. ", dropped=1),
    case("a special token in brackets", "The token (<|python_tag|>) is one, <|python_tag|>, too.", content="The token (<|python_tag|>) is one, <|python_tag|>, too."),
    *(
        case(f"a thought in {tag}", f"{tag}SECRET</think>Hi.", content="Hi.")
        for tag in ("<think budget>", '<think hidden effort="high">', f"<think note='{'x' * 150}'>", f"<think {chr(97) * 40}=1>", "<thinking loudly >")
    ),
    *(
        case(f"a call behind {ascii(odd)}", f'<tool_call>{odd}{{"name": "now", "arguments": {{}}}}</tool_call>Hi.', content="Hi.", calls=("now",))
        for odd in ("\ufeff", "\u200b", " \u2060\n")
    ),
    case("a name behind a blank that is not seen", '[TOOL_CALLS]\u200bnow[ARGS]{"x": "SECRET"}', calls=("now",)),
    *(
        case(f"a call behind {odd!r}", f'<tool_call>{odd}{{"name": "now", "arguments": {{"x": "SECRET"}}}}</tool_call>Hi.', content="Hi.", dropped=1)
        for odd in ("- ", "*", "\u2026", "\uff1a", "<![CDATA[", "\n# SECRET\n", "// SECRET\n", "<!-- SECRET -->")
    ),
    *(
        case(f"a call in a thought before {end[:9]}", f'<think>SECRET <tool_call>{{"name": "now", "arguments": {{"x": "SECRET"}}}}</tool_call>{end}', error=FILTERED)
        for end in ("<|start|>assistant<|channel|>final<|message|>", "<|im_start|>answer", "<|content|>")
    ),
    case(
        "a call in a fence in what is dropped", f'[TOOL_CALLS]now[ARGS]{{}}\n{{"a": 1}}\n\n```json\n<tool_call>\n{{"name": "now", "arguments": {{"x": "SECRET"}}}}\n</tool_call>\n```\n{GOOD}Hi.',
        content="Hi.", calls=("now", "now"), dropped=1,
    ),
    case("a lone newline in the reasoning", field("\n"), "Hi.", content="Hi."),
    case("newlines everywhere", "\n", field("\n\n"), "\n", field("\n"), "\nHi.", content="Hi."),
]  # fmt: skip


def wire(said: tuple[Any, ...], size: int | None, finish: str) -> bytes:
    """The reply, each field's text cut into deltas of this size."""
    deltas: list[Any] = []
    for part in said:
        name, text = ("content", part) if isinstance(part, str) else next(iter(part.items()))
        if isinstance(text, str) and size:
            deltas += [{name: text[at : at + size]} for at in range(0, len(text), size)]
        else:
            deltas.append({name: text})
    return stream(*deltas, finish=finish)


def hear(one: Case, size: int | None, **rules: Any) -> tuple[Heard, int]:
    """What a caller hears, and how many blocks were dropped."""
    pipeline = Pipeline(policy(**rules))
    heard = heard_through(pipeline, wire(one.said, size, one.finish))
    return heard, pipeline.dropped


def check(one: Case, heard: Heard, dropped: int) -> None:
    assert heard.error == one.error
    assert heard.content == one.content
    assert tuple(name for name, _ in heard.calls) == one.calls
    assert dropped == one.dropped
    assert "SECRET" not in heard.content
    if one.error is None:
        assert heard.finish == ("tool_calls" if one.calls else one.finish)


@looped("one", THOUGHTS + CALLS, in_groups_of=50)
@looped("size", CUTS)
def test_held_to_its_end_nothing_leaks_on_any_cut(one: Case, size: int | None) -> None:
    held = {"guard": UNBOUNDED, "after": UNBOUNDED}
    heard, dropped = hear(one, size, **held)
    if heard.error:  # a whole reply that broke shows nothing else
        assert heard.error == one.error and "SECRET" not in heard.content
    else:
        check(one, heard, dropped)


@looped("one", OF_EACH_FAMILY, in_groups_of=50)
@looped("size", CUTS)
def test_every_family_is_known_without_tools_too(one: Case, size: int | None) -> None:
    check(one, *hear(one, size, guard=160, tools=False))


@looped("one", [c for c in IN_ARGUMENTS if not (c.calls or c.dropped)], in_groups_of=50)
@looped("size", CUTS)
def test_a_closing_tag_in_an_argument_is_one_without_tools_too(one: Case, size: int | None) -> None:
    check(one, *hear(one, size, tools=False))


@looped("one", IN_ARGUMENTS + BROKEN_OFF, in_groups_of=50)
def test_wherever_it_is_cut(one: Case) -> None:
    """By day each case is cut at every other place: of the cases in a row, which have much in common, at all places."""
    said = one.said[0] if len(one.said) == 1 else None
    if isinstance(said, str):
        heard = heard_of(said)
        apart = scaled(2, 1)
        places = range(1 + (IN_ARGUMENTS + BROKEN_OFF).index(one) % apart, len(said), apart)
        assert {heard_of(said[:at], said[at:]) for at in places} == {heard}
        assert heard == one.content


@pytest.mark.parametrize(
    "rest, heard",
    [('"}}</tool_call>SECRET</think>Hi.', "Hi."), ("Hi.", "Hi."), ('"SECRET" so', '"SECRET" so'), ('", "y": "SECRET', "")],
)  # fmt: skip
@looped("held", ["", "<"])
def test_nor_does_a_token_that_is_not_in_the_text_end_it(rest: str, heard: str, held: str) -> None:
    segmenter = Segmenter(0, tag_set(ALL_FAMILIES, ALL_CALL_FAMILIES), policy().call_rules)
    out = segmenter.feed(Text(0, f'<think>a <tool_call>{{"name": "f", "arguments": {{"x": "{held}'))
    out += segmenter.end_thought()
    for char in rest:
        out += segmenter.feed(Text(0, char))
    out += segmenter.feed(Finish(0, "stop"))
    assert "".join(made.text for made in out if isinstance(made, Text)) == heard


def test_what_is_held_of_an_argument_that_may_hold_a_closing_tag_is_bounded() -> None:
    """So long is no call; before that it is held, as a call outside a thought is."""
    begun = '<think><tool_call>{"name": "now", "arguments": {"x": "</think>'
    segmenter = Segmenter(0, tag_set(ALL_FAMILIES, ALL_CALL_FAMILIES), policy().call_rules)
    out = [*segmenter.feed(Text(0, begun)), *segmenter.feed(Text(0, "Hi " * (MAX_CALL_CHARS // 3 + 1)))]
    assert "".join(made.text for made in out if isinstance(made, Text)).startswith("Hi Hi ")


THINKING = tuple(name for name, family in FAMILIES.items() if family.closes or family.answers)
Step = tuple[str, str]
"""A family, and its tag to write: `open` or `close`; `word` for a word."""


def where_it_ends(steps: list[Step], begin: int, depth: int = 0) -> int:
    """The step that ends the thought which step `begin` opens; len(steps) if none does."""
    family, at = steps[begin][0], begin + 1
    while at < len(steps):
        other, what = steps[at]
        mixed_up = depth == 0 and FAMILIES[other].kind == FAMILIES[family].kind
        if what == "close" and (other == family or mixed_up):
            return at
        at = (where_it_ends(steps, at, depth + 1) if what == "open" else at) + 1
    return len(steps)


def written_out(steps: list[Step]) -> tuple[str, str]:
    """The steps as a model writes them, and the words that are heard; a closing tag in speech is left out."""
    said, heard, until = "", "", -1
    for at, (family, what) in enumerate(steps):
        tags = FAMILIES[family]
        if what == "word":
            said += f"w{at}. "
            heard += f"w{at}. " if at > until else ""
        elif what == "open":
            until = where_it_ends(steps, at) if at > until else until
            said += (tags.opens + tags.answers)[at % len(tags.opens + tags.answers)]
        elif at <= until:
            said += (tags.closes + tags.answer_ends)[at % len(tags.closes + tags.answer_ends)]
    return said, heard


@pytest.mark.parametrize("calls", [True, False])
@pytest.mark.parametrize("blank", ["", "\n", "\r\n\n", "\r"])
def test_the_first_word_goes_the_short_way_and_newlines_before_it_are_left_out(
    calls: bool, blank: str
) -> None:
    """It is the token that the caller waits for. The short way hands on the very event, the long one makes another."""
    apart = Segmenter(0, tag_set(ALL_FAMILIES, ()), policy().call_rules if calls else None)
    assert not blank or apart.feed(Text(0, blank)) == []
    word = Text(0, "Good")
    assert [segment is word for segment in apart.feed(word)] == [True]
    assert apart.is_plain
    assert apart.passes(" morning\n" if not calls else " morning")
    assert apart.feed(Text(0, "<|channel|>final<|message|>")) == [
        Retract()
    ]  # it was said before the answer's header
    joined = Segmenter(0, tag_set(ALL_FAMILIES, ()), policy().call_rules if calls else None)
    assert joined.feed(Text(0, f"{blank}Good")) == [word]


def heard_of(*parts: str) -> str:
    """What is said of a text that came in these parts, without any hold-back."""
    segmenter = Segmenter(0, tag_set(ALL_FAMILIES, ALL_CALL_FAMILIES), policy().call_rules)
    events: list[Event] = [*(Text(0, part) for part in parts if part), Finish(0, "stop")]
    segments = [made for event in events for made in segmenter.feed(event)]
    return "".join(made.text for made in segments if isinstance(made, Text))


@looped("families", [("think", "tool_response"), ("think", "thinking"), ("mistral", "think")])
def test_no_closing_tag_of_another_family_opens_the_mouth(families: tuple[str, str]) -> None:
    """In every order of five tags of two families, the first of them an opening one."""
    tags = list(product(families, ("open", "close")))
    for knot in product(tags, repeat=4):
        steps = [step for tag in ((families[0], "open"), *knot) for step in (tag, ("think", "word"))]
        said, heard = written_out(steps)
        assert heard_of(said) == heard, said


@looped("seed", range(scaled(60, 2000)))
def test_nor_does_one_of_three_families_wherever_the_stream_is_cut(seed: int) -> None:
    drawn = Random(seed)
    families = drawn.sample(THINKING, 3)
    whats = ("open", "close", "close", "word", "word")
    steps = [(families[0], "open"), *((drawn.choice(families), drawn.choice(whats)) for _ in range(12))]
    said, heard = written_out(steps)
    for cut in range(len(said)):
        assert heard_of(said[:cut], said[cut:]) == heard, (said, cut)


def test_thoughts_that_nest_without_end_are_never_said() -> None:
    deep = "".join(f"{FAMILIES[name].opens[0]}a" for name in ("think", "mistral")) * DEEPEST
    ends = "".join(f"{FAMILIES[name].closes[0]}a" for name in ("mistral", "think")) * DEEPEST
    assert heard_streaming(stream(deep + ends + "a"), policy()).content == ""
    same = "<think>a" * 5000 + "</think>" * 5000 + "Hi."
    assert heard_streaming(stream(same), policy()).content == "Hi."


ORPHANS = ("orphan closer", "orphan closers", "takes back", "the prompt wrote", "both fields", "over three")


@looped("one", [c for c in CALLS if "SECRET " not in str(c.said[0])], in_groups_of=50)
@looped("size", CUTS)
def test_a_broken_call_is_silent_on_any_cut_without_a_hold_back(one: Case, size: int | None) -> None:
    check(one, *hear(one, size, guard=0, after=0))


@pytest.mark.parametrize("call", INTERRUPTED_CALLS, ids=lambda call: call[0][:14])
@looped("by", [NATIVE, {"reasoning": "hm"}])
@looped("guard", [0, UNBOUNDED])
def test_wherever_a_call_is_interrupted_nothing_of_it_is_heard(
    call: tuple[str, str, int], by: dict[str, Any], guard: int
) -> None:
    written, end, first = call
    for at in range(first, len(written), 1 if guard else 3):
        said = ("Hi.\n" + written[:at], by, written[at:] + end + "Bye.")
        for size in (None, 1):
            heard = heard_streaming(wire(said, size, "stop"), policy(guard=guard))
            assert (heard.content.replace("\n", ""), heard.error) == ("Hi.Bye.", None), said


@looped("one", THOUGHTS, in_groups_of=50)
@looped("size", CUTS)
def test_a_hold_back_of_a_sentence_catches_a_lost_tag(one: Case, size: int | None) -> None:
    check(one, *hear(one, size, guard=160))


@looped("one", [c for c in THOUGHTS if not any(word in c.name for word in ORPHANS)], in_groups_of=50)
@looped("size", CUTS)
def test_whole_tags_need_no_hold_back(one: Case, size: int | None) -> None:
    check(one, *hear(one, size, guard=0, after=0))


def test_a_family_that_is_switched_off_is_text() -> None:
    rules = policy(tools=False)
    think = type(rules.think)(families=("think",))
    heard = heard_streaming(stream("[THINK]a[/THINK]Hi."), type(rules)(think, None, "t"))
    assert heard.content == "[THINK]a[/THINK]Hi."
    said = "to=functions.now {}<details type='reasoning'>a</details>Hi."
    for text in (said, said.replace("{}", "<|message|>")):
        assert heard_streaming(stream(text), type(rules)(think, None, "t")).content == text
    said = "functions.now:0<|tool_call_argument_begin|>"
    assert (
        heard_streaming(stream(said), type(rules)(tools=Tools(TOOLS), call_families=("qwen", "json"))).content
        == said
    )


HALVES = (
    "<thi", "</thi", "</think", "<think id='x", "<th\u200bin", "&lt;think", "\uff1cthink", "[THIN", "◁thi", "<|chan", "<|channel|>",
    "<|channel|>analysis", "<tool_c", "</tool_cal", "[TOOL_CALLS", "[TOOL_CALLS]", "<|python_ta", "<|python_tag|>", "<func",
    "<function=now", "<function=now>", "</funct", "<tool_call>\n", "<tool_call><func", "<tool_call>\n<", "<｜tool▁ca",
)  # fmt: skip


@looped("half", HALVES)
@looped("size", CUTS)
def test_half_a_tag_at_the_end_of_a_reply_is_no_speech(half: str, size: int | None) -> None:
    for finish in ("stop", "length"):
        for tools in (True, False):
            for guard in (0, UNBOUNDED):
                data = wire(("Hi. " + half,), size, finish)
                heard = heard_streaming(data, policy(tools=tools, guard=guard))
                taken_back = half == "</think" and guard > 0
                assert (heard.content, heard.calls) == ("" if taken_back else "Hi. ", [])


@pytest.mark.parametrize("finish", ["stop", "length"])
def test_a_closing_tag_that_lost_its_end_still_ends_a_thought(finish: str) -> None:
    heard = heard_streaming(stream("SECRET</think", finish=finish), policy(guard=UNBOUNDED))
    assert "SECRET" not in heard.content


@pytest.mark.parametrize("finish", ["stop", "length"])
@pytest.mark.parametrize("end", ["3 <", "AT&", "a <3", "`<think", "[", "<b>", "x[1", "&lt;b&gt", "&lt;"])
def test_the_end_of_prose_is_no_half_tag(end: str, finish: str) -> None:
    assert heard_streaming(stream("Hi. " + end, finish=finish), policy()).content == "Hi. " + end


@pytest.mark.parametrize("half", ["<thi", "</tool_cal", "[TOOL_C"])
def test_half_a_tag_before_a_call_or_a_thought_is_no_speech(half: str) -> None:
    """Its parser saw late that a call began: what it had sent by then is half of the call's tag."""
    for behind in (NATIVE, field("SECRET")):
        assert heard_streaming(stream("Hi. " + half, behind, "Bye."), policy()).content == "Hi. Bye."


XML_AND_CODE = (
    "<functions><function>f</function><parameter>p</parameter></functions>",
    '<config><Parameter name="a">1</Parameter>\n<parameter\n name="b">2</parameter></config>',
    '<function name="f"><text>It adds.</text></function> Bye.',
    "```rust\nfn f() -> Box<Thought> { x }\n```\nBye.",
    "```jinja\n{{ '<think>\\n' }}{{ '</think>' }}\n```\nBye.",
    '```py\nprint("<think>", "</think>")\n```\nBye.',
)


@looped("answer", XML_AND_CODE)
@looped("size", CUTS)
def test_an_answer_in_xml_or_code_is_left_as_it_is(answer: str, size: int | None) -> None:
    for rules in (policy(), policy(tools=False), policy(guard=UNBOUNDED)):
        assert heard_streaming(wire((answer,), size, "stop"), rules).content == answer


@looped("size", CUTS)
def test_a_thought_in_a_code_fence_is_no_code(size: int | None) -> None:
    said = "```\n<think>SECRET</think>Hi. <think>SECRET</think>\n```\n<think>SECRET</think>Bye."
    assert "SECRET" not in heard_streaming(wire((said,), size, "stop"), policy()).content


def test_an_end_tag_more_than_was_opened_is_taken_out() -> None:
    said = "<function>f</function></function></parameter> Bye."
    assert heard_streaming(stream(said), policy()).content == "<function>f</function> Bye."


def test_half_a_tag_over_both_fields_at_the_end_is_no_speech() -> None:
    heard = heard_streaming(stream("Hi.", field("SECRET</th"), "in"), policy())
    assert heard.content == "Hi."


@looped("char", "\x00\x08\x1b\x7f\xad\u034f\u061c\u180e\u200b\u200e\u202e\u2060\u2064\u2069\ufe0f\ufeff")
@looped("size", CUTS)
def test_an_invisible_character_hides_no_tag(char: str, size: int | None) -> None:
    for said in (f"<th{char}ink>SECRET</think{char}>Hi.", f"<{char}think>SECRET<{char}/think>Hi."):
        assert heard_streaming(wire((said,), size, "stop"), policy()).content == "Hi."


TAGS = [tag for f in FAMILIES.values() for tag in (*f.opens, *f.closes, *f.starts, *f.finals, *f.ends)]
TAGS += [tag for f in CALL_FAMILIES.values() for tags in msgspec.structs.astuple(f) for tag in tags]


@pytest.mark.parametrize("before", ["It is ", "Es ist schön: ", "ಅದು ", "它是", "🙂 "])
def test_no_beginning_of_a_tag_goes_the_short_way(before: str) -> None:
    """The short way looks for the first characters of tags before it asks for the tags themselves."""
    wide, escaped = str.maketrans("<>", "\uff1c\uff1e"), {ord("<"): "&lt;", ord(">"): "&gt;"}
    segmenter = Segmenter(0, tag_set(ALL_FAMILIES, ALL_CALL_FAMILIES), policy().call_rules)
    segmenter.feed(Text(0, "Hi."))
    assert segmenter.passes(before)
    for tag in TAGS:
        for written in (tag, tag.translate(wide), tag.translate(escaped), tag[:2], tag[:1]):
            assert not segmenter.passes(before + written), written


def test_no_tag_of_a_thought_belongs_to_two_families() -> None:
    """Its thought would be opened by one of them and closed by the other, and so never end."""
    owned = [
        (tag.lower(), name)
        for name, f in FAMILIES.items()
        for tag in {*f.opens, *f.closes, *f.answers, *f.answer_ends}
    ]
    assert len(dict(owned)) == len(owned), sorted(owned)


@pytest.mark.slow  # the tags of all families are compiled anew: 2 s
def test_a_tag_is_compiled_once_for_all_that_look_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """A start compiles these three sets, in another order. A million characters are seconds of it."""
    real, written = tags._compiled, 0

    def compiled(pattern: str) -> re.Pattern[str]:
        nonlocal written
        written += len(pattern)
        return real(pattern)

    monkeypatch.setattr(tags, "_compiled", compiled)
    thoughts, calls = ALL_FAMILIES[::-1], ALL_CALL_FAMILIES[::-1]
    for some in ((thoughts, calls), (thoughts, ()), ((), calls)):
        tag_set(*some)
    assert 100_000 < written < 350_000


@pytest.mark.parametrize("tools", [True, False])
@pytest.mark.parametrize("blank", ["\n", "\r\n", " ", "\n \n", "\u2028", "\t"])
@pytest.mark.parametrize("name", ["reasoning", "content", "reasoning_content"])
def test_blank_pieces_are_no_fault(name: str, blank: str, tools: bool) -> None:
    for leak in (True, False):
        rules = policy(tools=tools, reasoning_is_answer=leak)
        heard = heard_streaming(stream({name: blank}, {name: blank}, "Hi.", {name: blank}), rules)
        assert heard.error is None and heard.content.strip() == "Hi."


@pytest.mark.parametrize("blank", ["\n", "\r\n\n", " ", "\t\n"])
@pytest.mark.parametrize("tools", [True, False])
@pytest.mark.parametrize("leak", [True, False])
def test_a_reply_of_blank_reasoning_is_an_empty_one(blank: str, tools: bool, leak: bool) -> None:
    heard = heard_streaming(stream(field(blank)), policy(tools=tools, reasoning_is_answer=leak))
    assert (heard.content.strip(), heard.error, heard.finish) == ("", None, "stop")


def test_an_answer_in_the_reasoning_field_is_heard_without_its_thought() -> None:
    rules = policy(reasoning_is_answer=True)
    assert heard_streaming(stream(field("SECRET</think>Two.")), rules).content == "Two."
    assert heard_streaming(stream(field("<think>SECRET</think>Two.")), rules).content == "Two."


OTHER_CALLS: tuple[dict[str, Any] | str, ...] = (
    '<tool_call>{"name": "other", "arguments": {}}</tool_call>',
    "<tool_call>{'name'}</tool_call>",
    {"tool_calls": [{"index": 0, "id": "c", "function": {"name": "other", "arguments": "{}"}}]},
)


@pytest.mark.parametrize("tools", [True, False])
@pytest.mark.parametrize("call", OTHER_CALLS, ids=["text", "broken", "native"])
def test_reasoning_beside_a_call_that_is_dropped_is_no_answer(
    call: dict[str, Any] | str, tools: bool
) -> None:
    """Only a reply that came wholly in the reasoning field is the answer."""
    for said in ((field("SECRET"), call), (call, field("SECRET"))):
        heard = heard_streaming(stream(*said), policy(tools=tools, reasoning_is_answer=True))
        assert (heard.content, heard.calls, heard.error) == ("", [], FILTERED)


def test_reasoning_beside_a_thought_in_the_text_is_no_answer() -> None:
    for thought in ("<think>a</think>", "<think>a"):
        for said in ((thought, field("SECRET")), (field("SECRET"), thought)):
            heard = heard_streaming(stream(*said), policy(reasoning_is_answer=True))
            assert (heard.content, heard.error) == ("", FILTERED)


@looped("size", CUTS)
@looped("reasoning_is_answer", [True, False])
def test_reasoning_may_begin_in_the_middle_of_a_call_in_a_thought(
    size: int | None, reasoning_is_answer: bool
) -> None:
    begun = '<think>a <tool_call>{"name": "now", "arguments": {"x": "'
    for said, content, error in (
        ((begun, field("SECRET SECRET")), "", FILTERED),
        ((begun, field("SECRET"), "SECRET"), "", FILTERED),
        ((begun, field("SECRET"), 'SECRET"}}</tool_call>SECRET</think>Hi.'), "Hi.", None),
        ((begun, field('SECRET"}}</tool_call>SECRET</think>'), "Hi."), "Hi.", None),
        ((begun, "SECRET", field("SECRET</think>"), "Hi."), "Hi.", None),
    ):
        heard = heard_streaming(wire(said, size, "stop"), policy(reasoning_is_answer=reasoning_is_answer))
        assert (heard.content, heard.error) == (content, error)


NO_CALLS = (
    '[TOOL_CALLS]now[ARGS]{"x": "a"}\n{"a": 1}\n', '<tool_call>{"name": 5, x\n', "<tool_call>\n<function=now>\nbroken\n", "<function=now>{\n",
    "```tool_call\n{bad\n", "now({\n", "[now(\n", "<now>\n", "<now>\n<x>a\n", "Action: now\nAction Input: {\n", '{"name": "now", "arguments": {\n',
    "<|python_tag|>{x\n", "<tool_calls>[{x\n", "<parameter=x>\n",
)  # fmt: skip
"""Calls that are none, and what was said of one."""
IN_THOUGHT = (
    '<tool_call>{"name": "now", "arguments": {"x": "SECRET"}}</tool_call>',
    '<tool_call>{"name": "now", "arguments": {"x": "SECRET"}}',
    "<tool_call>\n<function=now>\n<parameter=x>\nSECRET",
    '[TOOL_CALLS]now[ARGS]{"x": "SECRET"}',
    'now({"x": "SECRET"})',
)


@looped(
    "said",
    [f"{broken}%shm {call}%s\nHi." for broken, call in product(NO_CALLS, IN_THOUGHT)],
    in_groups_of=10,
)
def test_a_call_in_a_thought_behind_a_broken_one_is_none(said: str) -> None:
    for pair in (
        ("<think>", "</think>"),
        ("◁think▷", "◁/think▷"),
        ("[THINK]", "[/THINK]"),
        ("<|channel|>analysis<|message|>", "<|end|><|start|>assistant<|channel|>final<|message|>"),
    ):
        sent, rules = (said % pair,), policy()
        whole = heard_streaming(wire(sent, None, "stop"), policy(guard=UNBOUNDED))
        heard = [heard_streaming(wire(sent, size, "stop"), rules) for size in CUTS]
        found = [(one.content, one.calls, one.error) for one in (whole, *heard)]
        assert "SECRET" not in str(found)
        assert found[1:] == [found[1]] * len(CUTS)


UNTAGGED = (
    '{"name": "now", "arguments": {"x": 1} oops} %s', '{"name": "now", "arguments": {"x": [%s', "now(x= %s", "now {'x': 1 %s", "[now(1), %s",
    "so {'name': 'now', 'arguments': {'x': 1} %s", "now('a', %s)\n", "now({\n%s", "Action: now\nAction Input: {\"x\": [%s", "Action: now\nAction Input: a %s",
    "<now>%s</now>\n", "<now>so %s</now>\n", "<now>{%s</now>\n", "```tool_code\nnow(%s\n```\n", "~~~tool_call\n{%s\n~~~\n",
    '<tool_call>{"name": 5, x %s</tool_call>\n', '[TOOL_CALLS]now[ARGS]{"x": [%s[TOOL_CALLS]', "<function=now>{%s</function>\n",
    "<tool_call>\n<function=%s\n</function></tool_call>\n",
)  # fmt: skip
"""Calls that are none, each with what ends it; at `%s` a thought begins, in which nothing does."""
HIDDEN = (
    "hm\nSECRET", "hm\n\nSECRET", 'hm\n<tool_call>{"name": "now", "arguments": {"x": "SECRET"}}</tool_call>', "hm\n```\nSECRET", "hm }]) SECRET", 'he said "hm\nSECRET',
)  # fmt: skip


@pytest.mark.parametrize("guard", [0, 160])
@looped("row", product(UNTAGGED, HIDDEN, [True, False]), in_groups_of=40)
def test_in_a_thought_in_a_call_that_is_none_nothing_ends_that_call(
    row: tuple[str, str, bool], guard: int
) -> None:
    broken, hidden, is_closed = row
    for opener, closer in (
        ("<think>", "</think>"),
        ("◁think▷", "◁/think▷"),
        ("[THINK]", "[/THINK]"),
        ("<tool_response>", "</tool_response>"),
        ("<|channel|>analysis<|message|>", "<|end|>"),
    ):
        head, _, end = broken.partition("%s")
        said = f"{head}{opener}{hidden}{end}SECRET" + (closer if is_closed else "")
        whole = heard_streaming(wire((said,), None, "stop"), policy(guard=UNBOUNDED))
        heard = [heard_streaming(wire((said,), size, "stop"), policy(guard=guard)) for size in CUTS]
        found = [(one.content, one.calls, one.error) for one in (whole, *heard)]
        assert "SECRET" not in str(found), (said, found)
        assert found == [found[0]] * len(found)


@looped("broken", UNTAGGED)
def test_a_native_call_in_a_thought_in_a_call_that_is_none_does_not_end_that_thought(broken: str) -> None:
    head, _, end = broken.partition("%s")
    for guard, closer in product((0, 160), ("</think>", "")):
        said = (f"{head}<think>hm", NATIVE, f" SECRET{end}SECRET{closer}")
        heard = heard_streaming(wire(said, None, "stop"), policy(guard=guard))
        assert ("SECRET" in heard.content, len(heard.calls)) == (False, 1), (said, heard)


@pytest.mark.parametrize("guard", [0, 160])
@looped("size", CUTS)
def test_behind_a_thought_in_a_call_that_is_none_that_call_goes_on_or_ends(
    size: int | None, guard: int
) -> None:
    thought = "<think>hm\n\nSECRET</now>\n```\n</tool_call></think>"
    for said, content in (
        ('{"name": "now", "arguments": {"x": 1} oops} %sHi.', "Hi."),
        ("now(x=1 oops and so on %sHi.", "Hi."),
        ("Action: now\nAction Input: a %sHi.", "Hi."),
        ("now('a', <think>SECRET</think>)\nHi.", "Hi."),
        ("now('a <think> b')\nHi.", "Hi."),
        ("now {'x': oops %s SECRET\n'y': SECRET}\nHi.", "Hi."),
        ("<now>%s SECRET</now>Hi.", "Hi."),
        ("```tool_code\nnow(%s SECRET)\n```\nHi.", "Hi."),
        ("```tool_code\n%s```\nHi.", "Hi."),
        ('<tool_call>{"name": 5, x %s SECRET</tool_call>Hi.', "Hi."),
        ("<tool_call>so %s SECRET</tool_call>Hi.", "Hi."),
        ('{"name": "now", "arguments": {"x": 1} oops} <|channel|>final<|message|>Hi.', "Hi."),
        ('SECRET {"name": "now", "arguments": {"x": 1} oops} SECRET</think>Hi.', "Hi."),
    ):
        if not guard and said.startswith("SECRET"):
            continue  # it had gone out
        said = said.replace("%s", thought)
        assert heard_streaming(wire((said,), size, "stop"), policy(guard=guard)).content == content, said


def test_work_is_linear_in_a_reply_of_blanks_and_of_brackets() -> None:
    """Counted in characters that are scanned or joined, not in seconds: what is held stays short."""
    for text in (" ", "\n", "<", "[", "`", "<tool_call>", "<think", "</", "<function=", "a<"):
        pipeline = Pipeline(policy(guard=160))
        most = 0
        for _ in range(2000):
            pipeline.feed(chunk(text))
            choice = pipeline._choice
            assert choice is not None
            block = choice.segmenter._block
            held = len(choice.segmenter._held) + len(getattr(block, "_held", ""))
            most = max(most, held)
        assert most <= 512, text


@pytest.mark.parametrize("more", ['"a": "b", ', "a b ", "<think>a", "<thi"])
@pytest.mark.parametrize(
    "begun", ['<tool_call>{"name": "now", "arguments": {', "<tool_call>{x", "now(x=", "<think>"]
)
def test_what_is_kept_of_an_endless_reply_behind_an_interruption_is_bounded(begun: str, more: str) -> None:
    pipeline = Pipeline(policy(guard=0, after=0))
    pipeline.feed(chunk(begun) + chunk(NATIVE))
    tracemalloc.start()
    try:
        for _ in range(10):
            pipeline.feed(chunk(more * 1000))
        assert tracemalloc.get_traced_memory()[0] < MAX_CALL_CHARS
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("said", ["<think>SECRET</think>", "<tool_call>[1]</tool_call>", "SECRET</think>"])
def test_a_finish_that_waits_for_its_usage_may_uncover_that_nothing_is_left(said: str) -> None:
    rules = msgspec.structs.replace(policy(guard=64), most=50)
    usage = event({"choices": [], "usage": {"prompt_tokens": 1, "completion_tokens": 9}})
    for end in (usage + b"data: [DONE]\n\n", b"data: [DONE]\n\n", event({"error": "gone"}), b""):
        heard = heard_streaming(stream(said, finish="tool_calls", done=False) + end, rules)
        assert heard.error == FILTERED


def test_text_that_is_held_when_the_stream_breaks_is_not_heard() -> None:
    heard = heard_streaming(stream("SECRET so far", finish=None, done=False), policy(guard=64))
    assert (heard.content, heard.error) == ("", "upstream_truncated")


def test_a_bracket_before_a_native_call_waits_for_what_stands_behind_it() -> None:
    events = run(stream("Is 3 <", NATIVE, finish="tool_calls"), policy())
    assert [type(e) for e in events] == [Text, CallStart, CallArguments, Text, Finish, Done]
    assert "".join(e.text for e in events if isinstance(e, Text)) == "Is 3 <"


def test_every_role_is_among_those_that_are_tried() -> None:
    assert sorted(_ORDER) == sorted(get_args(Role))
