"""Tool calls in every form that models write, with tools in the request and without: none is ever heard."""

import json
from dataclasses import dataclass
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.stream.bare_calls import calls_in
from app.stream.events import Text
from app.stream.holdback import FILTERED, UNBOUNDED
from app.stream.loose_calls import python_calls
from app.stream.pipeline import Pipeline, StreamPolicy
from app.stream.tags import CALL_FAMILIES
from tests.app.stream.wire import Heard, chunk, heard_streaming, heard_through, heard_whole, policy, stream
from tests.looped import looped
from tests.scale import scaled

CUTS = scaled((0, 1, 3, 20), (0, 1, 2, 3, 7, 20))
QUERY = '{"query": "SECRET"}'
OBJECT = f'{{"name": "web_search", "arguments": {QUERY}}}'
OTHER = '{"name": "now", "parameters": {}}'


@dataclass(frozen=True)
class Form:
    """A whole call, or several, as models write them, and what it is with tools: calls, or nothing."""

    name: str
    text: str
    calls: tuple[str, ...] = ("web_search",)


FORMS = [
    Form("hermes", f"<tool_call>\n{OBJECT}\n</tool_call>"),
    Form("XML", "<tool_call>\n<function=web_search>\n<parameter=query>\nSECRET\n</parameter>\n</function>\n</tool_call>"),
    Form("XML without its wrapper", "<function=web_search>\n<parameter=query>\nSECRET\n</parameter>\n</function>"),
    Form("bare JSON", OBJECT),
    Form("bare JSON with parameters", f'{{"name": "web_search", "parameters": {QUERY}}}'),
    Form("bare JSON, the arguments first", f'{{"arguments": {QUERY}, "name": "web_search"}}'),
    Form("bare JSON with a type", f'{{"type": "function", "name": "web_search", "parameters": {QUERY}}}'),
    Form("bare JSON as OpenAI nests it", f'{{"type": "function", "function": {OBJECT}}}'),
    Form("bare JSON with a list of calls", f'{{"tool_calls": [{{"id": "c", "type": "function", "function": {OBJECT}}}]}}'),
    Form("bare JSON over lines", json.dumps(json.loads(OBJECT), indent=2)),
    Form("bare JSON, indented", "  " + OBJECT),
    Form("bare JSON whose arguments are encoded twice", json.dumps({"name": "web_search", "arguments": QUERY})),
    Form("bare JSON with other keys", f'{{"tool": "web_search", "args": {QUERY}}}'),
    Form("a bare array", f"[{OBJECT}, {OTHER}]", ("web_search", "now")),
    Form("a bare array over lines", f"[\n  {OBJECT},\n  {OTHER}\n]", ("web_search", "now")),
    Form("two bare calls", f"{OBJECT}\n{OTHER}", ("web_search", "now")),
    Form("two bare calls in one line", f"{OBJECT}; {OTHER}", ("web_search", "now")),
    Form("an array in tool_calls", f"<tool_calls>[{OBJECT}, {OTHER}]</tool_calls>", ("web_search", "now")),
    Form("an object in tool_calls", f"<tool_calls>\n{OBJECT}\n</tool_calls>"),
    Form("tool_call in tool_calls", f"<tool_calls>\n<tool_call>\n{OBJECT}\n</tool_call>\n<tool_call>{OTHER}</tool_call>\n</tool_calls>", ("web_search", "now")),
    Form("function_call", f"<function_call>{OBJECT}</function_call>"),
    Form("function_calls", f"<function_calls>[{OBJECT}]</function_calls>"),
    Form("functioncall without its end", f"<functioncall> {OBJECT}"),
    Form("Mistral's array", f"[TOOL_CALLS][{OBJECT}, {OTHER}]", ("web_search", "now")),
    Form("Mistral's array, apart", f"[TOOL_CALLS] [{OBJECT}]"),
    Form("Mistral's name and arguments", f"[TOOL_CALLS]web_search[ARGS]{QUERY}"),
    Form("Mistral's with an id", f"[TOOL_CALLS]web_search[CALL_ID]a1b2c3d4e[ARGS]{QUERY}"),
    Form("Mistral's without a mark", f"[TOOL_CALLS]web_search{QUERY}"),
    Form("two of Mistral's", f"[TOOL_CALLS]web_search[ARGS]{QUERY}[TOOL_CALLS]now[ARGS]{{}}", ("web_search", "now")),
    Form("Mistral's with an end", f"[tool_calls][{OBJECT}][/TOOL_CALLS]"),
    Form("Llama's", f'<|python_tag|>{{"type": "function", "name": "web_search", "parameters": {QUERY}}}'),
    Form("Llama's with its end", f"<|python_tag|>{OBJECT}; {OTHER}<|eom_id|>", ("web_search", "now")),
    Form("Llama's code", '<|python_tag|>web_search.call(query="SECRET")<|eom_id|>', ()),
    Form("Llama's words", "<|python_tag|>import SECRET", ()),
    Form("Granite's", f"<|tool_call|>[{OBJECT}]<|/tool_call|>"),
    Form("Kimi's", f"<|tool_calls_section_begin|><|tool_call_begin|>functions.web_search:0<|tool_call_argument_begin|>{QUERY}<|tool_call_end|><|tool_calls_section_end|>", ()),
    Form("Kimi's without its outer tokens", f"functions.web_search:0<|tool_call_argument_begin|>{QUERY}<|tool_call_end|>", ()),
    Form("DeepSeek's", f"<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>web_search\n{QUERY}<｜tool▁call▁end｜><｜tool▁calls▁end｜>", ()),
    Form("Kimi's, the section spelled otherwise", f"<|tool_call_section_begin|><|tool_call_begin|>functions.web_search:0<|tool_call_argument_begin|>{QUERY}<|tool_call_end|><|tool_call_section_end|>", ()),
    Form("DeepSeek's with narrow bars", f"<|tool▁calls▁begin|><|tool▁call▁begin|>web_search<|tool▁sep|>{QUERY}<|tool▁call▁end|><|tool▁calls▁end|>", ()),
    Form("DeepSeek's without blocks", f"<|tool_calls_begin|><|tool calls begin|><|tool_call_begin|>web_search<|tool_sep|>{QUERY}<|tool_call_end|><|tool_calls_end|>", ()),
    Form("DSML with narrow bars", '<|DSML|function_calls><|DSML|invoke name="web_search"><|DSML|parameter name="query">SECRET</|DSML|parameter></|DSML|invoke></|DSML|function_calls>', ()),
    Form("Granite's with wide bars", f"<｜tool_call｜>[{OBJECT}]<｜/tool_call｜>"),
    Form("LM Studio's", f"[TOOL_REQUEST]{OBJECT}[END_TOOL_REQUEST]"),
    Form("GigaChat's, more than one", f"<|function_calls|>[{OBJECT}]"),
    Form("Kimi's without its section", f"<|tool_call_begin|>functions.web_search:0<|tool_call_argument_begin|>{QUERY}<|tool_call_end|>", ()),
    Form("DeepSeek's without its section", f"<｜tool▁call▁begin｜>web_search<｜tool▁sep｜>{QUERY}<｜tool▁call▁end｜>", ()),
    Form("DeepSeek's in XML", '<｜DSML｜function_calls>\n<｜DSML｜invoke name="web_search">\n<｜DSML｜parameter name="query" string="true">SECRET</｜DSML｜parameter>\n</｜DSML｜invoke>\n</｜DSML｜function_calls>', ()),
    Form("DeepSeek's in XML without a section", '<｜DSML｜invoke name="web_search"><｜DSML｜parameter name="query">SECRET</｜DSML｜parameter></｜DSML｜invoke>', ()),
    Form("Seed's", "<seed:tool_call><function=web_search><parameter=query>SECRET</parameter></function></seed:tool_call>"),
    Form("MiniMax's", '<minimax:tool_call>\n<invoke name="web_search">\n<parameter name="query">SECRET</parameter>\n</invoke>\n</minimax:tool_call>', ()),
    Form("Hunyuan's", "<tool_calls:opensource>\n<tool_call:opensource>web_search<tool_sep:opensource>\n<arg_key:opensource>query</arg_key:opensource>\n<arg_value:opensource>SECRET</arg_value:opensource>\n</tool_call:opensource>\n</tool_calls:opensource>", ()),
    Form("LongCat's", f"<longcat_tool_call>\n{OBJECT}\n</longcat_tool_call>"),
    Form("dots'", '<dots_function_call>\n<invoke name="web_search">\n<parameter name="query">SECRET</parameter>\n</invoke>\n</dots_function_call>', ()),
    Form("Muse's", '<atem:function_calls>\n<atem:invoke name="web_search">\n<atem:parameter name="query">SECRET</atem:parameter>\n</atem:invoke>\n</atem:function_calls>', ()),
    Form("K2 Horizon's", "<ifm|tool_calls><ifm|tool_call>web_search<ifm|arg_key>query</ifm|arg_key><ifm|arg_value>SECRET</ifm|arg_value></ifm|tool_call></ifm|tool_calls>", ()),
    Form("Llama 4's", '<|python_start|>[web_search(query="SECRET")]<|python_end|>', ()),
    Form("GigaChat's", f"<|function_call|>{OBJECT}"),
    Form("Kimi K3's", '<|open|>tools<|sep|><|open|>call tool="web_search" index="1"<|sep|><|open|>argument key="query" type="string"<|sep|>SECRET<|close|>argument<|sep|><|close|>call<|sep|><|close|>tools<|sep|>', ()),
    Form("Kimi K3's without its section", '<|open|>call tool="web_search" index="1"<|sep|><|open|>argument key="query" type="string"<|sep|>SECRET<|close|>argument<|sep|><|close|>call<|sep|>', ()),
    Form("Solar's", f"<|tool_calls|><|tool_call:begin|>0<|tool_call:name|>web_search<|tool_call:args|>{QUERY}<|tool_call:end|>", ()),
    Form("Solar's without its section", f"<|tool_call:begin|>b462b4f8<|tool_call:name|>web_search<|tool_call:args|>{QUERY}<|tool_call:end|>", ()),
    Form("PLaMo's", f"<|plamo:begin_tool_requests:plamo|><|plamo:begin_tool_request:plamo|><|plamo:begin_tool_name:plamo|>web_search<|plamo:end_tool_name:plamo|><|plamo:begin_tool_arguments:plamo|>{QUERY}<|plamo:end_tool_arguments:plamo|><|plamo:end_tool_request:plamo|><|plamo:end_tool_requests:plamo|>", ()),
    Form("Inkling's", f'<|content_invoke_tool_json|>{{"name": "web_search", "args": {QUERY}}}'),
    Form("Step 3's tokens", '<｜tool_calls_begin｜><｜tool_call_begin｜>function<｜tool_sep｜><steptml:invoke name="web_search"><steptml:parameter name="query">SECRET</steptml:parameter></steptml:invoke><｜tool_call_end｜><｜tool_calls_end｜>', ()),
    Form("arguments by another name", f'<tool_call>{{"name": "web_search", "args": {QUERY}}}</tool_call>'),
    Form("Step's", '<steptml:toolcall><steptml:invoke name="web_search"><steptml:parameter name="query">SECRET</steptml:parameter></steptml:invoke></steptml:toolcall>', ()),
    Form("an invoke tag of a name space", '<antml:function_calls>\n<antml:invoke name="web_search">\n<antml:parameter name="query">SECRET</antml:parameter>\n</antml:invoke>\n</antml:function_calls>', ()),
    Form("Gemma 4's", '<|tool_call>call:web_search{query:<|"|>SECRET<|"|>}<tool_call|>', ()),
    Form("FunctionGemma's", "<start_function_call>call:web_search{query:<escape>SECRET<escape>}<end_function_call>", ()),
    Form("LFM's", '<|tool_call_start|>[web_search(query="SECRET")]<|tool_call_end|>', ()),
    Form("Apertus'", f'<|tools_prefix|>[{{"web_search": {QUERY}}}]<|tools_suffix|>', ()),
    Form("a function tag with attributes", '<function name="web_search"><parameter name="query">SECRET</parameter></function>', ()),
    Form("a function tag with attributes and JSON", f'<function name="web_search">{QUERY}</function>', ()),
    Form("a dash for the underscore", f"<tool-call>{OBJECT}</tool-call>"),
    Form("a mark of direction in the tag", f"<tool_call\u200e>{OBJECT}</tool_call\u200e>"),
    Form("Cohere's", f'<|START_ACTION|>[{{"tool_name": "web_search", "parameters": {QUERY}}}]<|END_ACTION|>'),
    Form("InternLM's", f"<|action_start|><|plugin|>\n{OBJECT}<|action_end|>", ()),
    Form("Qwen2.5's other tag", f"<tools>\n{OBJECT}\n</tools>"),
    Form("Gemma's code", "<tool_code>\nprint(web_search('SECRET'))\n</tool_code>", ()),
    Form("Gemma's fence", "```tool_code\nprint(web_search('SECRET'))\n```", ()),
    Form("a fence of a call in JSON", f"~~~ Tool_Call \n{OBJECT}\n~~~\n", ()),
    Form("one of Mistral's, misspelt", f"[TOOL_CALL]web_search[ARGS]{QUERY}"),
    Form("escaped for HTML", f"&lt;tool_call&gt;\n{OBJECT}\n&lt;/tool_call&gt;"),
    Form("escaped by numbers", f"&#60;tool_call&#62;{OBJECT}&#x3C;/tool_call&#x3E;"),
    Form("half escaped", f"&lt;tool_call>{OBJECT}&lt;/Tool_Call >"),
    Form("escaped with its quotes", f"&lt;tool_call&gt;{OBJECT.replace(chr(34), '&quot;')}&lt;/tool_call&gt;", ()),
    Form("escaped XML", "&lt;function=web_search&gt;\n&lt;parameter=query&gt;\nSECRET\n&lt;/parameter&gt;\n&lt;/function&gt;", ()),
    Form("an invoke tag", '<function_calls>\n<invoke name="web_search">\n<parameter name="query">SECRET</parameter>\n</invoke>\n</function_calls>', ()),
    Form("an invoke tag alone", '<invoke name="web_search"><parameter name="query">SECRET</parameter></invoke>', ()),
    Form("an orphan parameter, escaped", "&lt;parameter=query&#x3E;SECRET&#60;/parameter&gt;", ()),
    Form("an invoke tag, escaped by numbers", '&#60;invoke name="web_search"&#62;&#60;parameter name="query"&#62;SECRET&#60;/parameter&#62;&#60;/invoke&#62;', ()),
    Form("an orphan parameter", "<parameter=query>\nSECRET\n</parameter>\n</function>", ()),
    Form("an orphan parameter in one line", "<parameter=query>SECRET</parameter></function></tool_call>", ()),
    Form("single quotes", OBJECT.replace('"', "'"), ()),
    Form("Python's form", '[web_search(query="SECRET")]'),
    Form("two in Python's form", "[web_search(query='SECRET'), now()]", ("web_search", "now")),
    Form("Python's form over lines", '[\n  web_search(\n    query = "SECRET",\n  ),\n]'),
    Form("Python's form and a space behind it", '[ web_search(query="SECRET") ]  '),
    Form("two lists in Python's form", '[web_search(query="SECRET")]\n[web_search(query="SECRET")]', ("web_search", "web_search")),
    Form("keys without quotes", '{name: "web_search", arguments: {query: "SECRET"}}', ()),
    Form("keys without quotes, over lines", '{\n  name: "web_search",\n  arguments: {\n    query: "SECRET",\n  },\n}', ()),
    Form("no quotes at all", "{name: web_search, arguments: {query: SECRET}}", ()),
    Form("no quotes at all around words", "{name: web_search, arguments: {query: what is the SECRET of all of this?}}", ()),
    Form("typographic quotes", "{\u201cname\u201d: \u201cweb_search\u201d, \u201carguments\u201d: {\u201cquery\u201d: \u201cSECRET\u201d}}", ()),
    Form("full-width brackets", f"\uff1ctool_call\uff1e{OBJECT}\uff1c\uff0ftool_call\uff1e"),
    Form("full-width brackets, broken", "\uff1ctool_call\uff1e{SECRET\uff1c/tool_call\uff1e", ()),
    Form("invisible characters in the tag", f"<tool\u200b_call>{OBJECT}</tool\u2060_call>"),
    Form("escaped twice", f"&amp;lt;tool_call&amp;gt;{OBJECT}&amp;lt;/tool_call&amp;gt;"),
    Form("an array without quotes", '[{name: "web_search", parameters: {query: "SECRET"}}]', ()),
    Form("OpenAI's nesting without quotes", '{type: "function", function: {name: "web_search", arguments: {query: "SECRET"}}}', ()),
    Form("single quotes around the values", """{"name": 'web_search', "arguments": {"query": 'SECRET'}}""", ()),
    Form("single quotes and an apostrophe", """{'name': 'web_search', 'arguments': {'query': "it's SECRET"}}""", ()),
    Form("Python's constants", """{'name': 'web_search', 'arguments': {'query': None, 'x': 'SECRET'}}""", ()),
    Form("arguments that break off", '{"name": "web_search", "arguments": {"query": SECRET}}', ()),
    Form("an array of which one is a call", f'[{OBJECT}, {{"id": "SECRET"}}]'),
    Form("a call and then something else", f'[{OBJECT}, "SECRET"]', ()),
]  # fmt: skip


def deltas(text: str, size: int) -> list[str]:
    return [text[at : at + size] for at in range(0, len(text), size)] if size else [text]


def names(heard: Heard) -> tuple[str, ...]:
    return tuple(name for name, _ in heard.calls)


@looped("form", FORMS, in_groups_of=40)
@looped("size", CUTS)
def test_with_tools_a_call_is_a_call_in_every_form(form: Form, size: int) -> None:
    for before, after in (("", ""), ("Hi.\n", ""), ("Hi.\n", "\n\nBye."), ("<think>a</think>", "")):
        data = stream(*deltas(before + form.text + after, size))
        for heard in (
            heard_streaming(data, policy()),
            heard_whole(data, policy(guard=UNBOUNDED, after=UNBOUNDED)),
        ):
            assert "SECRET" not in heard.content and "web_search" not in heard.content
            assert names(heard) == (form.calls if heard.error is None else ())
            assert (heard.error == FILTERED) is (not form.calls and "Hi" not in before)
            assert heard.content.startswith("Hi.") or "Hi" not in before
            assert all(json.loads(arguments) in ({"query": "SECRET"}, {}) for _, arguments in heard.calls)


@looped("form", FORMS, in_groups_of=40)
@looped("size", CUTS)
def test_without_tools_it_is_neither_heard_nor_handed_on(form: Form, size: int) -> None:
    for rules in (policy(tools=False), policy(tools=False, guard=UNBOUNDED)):
        pipeline = Pipeline(rules)
        heard = heard_through(pipeline, stream(*deltas("Hi.\n" + form.text, size)))
        assert pipeline.dropped and {*pipeline.call_sources} <= {"unasked", "invalid"}
        assert not form.calls or pipeline.call_sources[0] == "unasked"
        assert (heard.content.strip(), heard.calls, heard.finish) == ("Hi.", [], "stop")
        assert heard_streaming(stream(*deltas(form.text, size)), rules).error == FILTERED


@looped("form", FORMS)
def test_one_of_a_tool_that_is_not_there_is_not_handed_on(form: Form) -> None:
    text = form.text.replace("web_search", "get_moon").replace("now", "get_sun")
    heard = heard_streaming(stream("Hi.\n" + text), policy())
    assert (heard.content.strip(), heard.calls) == ("Hi.", [])


@looped("form", FORMS)
def test_where_calls_are_to_stay_text_not_a_letter_is_missing(form: Form) -> None:
    said = "Hi.\n" + form.text
    assert heard_streaming(stream(said), policy(tools=False, unasked="text")).content == said


@looped("form", FORMS, in_groups_of=40)
@looped("size", CUTS)
def test_behind_a_thought_in_its_own_field_it_is_found(form: Form, size: int) -> None:
    """The last word of a thought does not stand before what is said behind it."""
    for first in ("", "Hi.\n"):
        for begin in ("", "\n"):
            said: list[dict[str, Any] | str] = [first, {"reasoning": "x"}, *deltas(begin + form.text, size)]
            heard = heard_streaming(stream(*said), policy())
            assert "SECRET" not in heard.content and names(heard) == (
                form.calls if heard.error is None else ()
            )


@looped("form", FORMS, in_groups_of=40)
@looped("size", CUTS)
def test_in_a_fence_and_without_tools_it_is_an_example(form: Form, size: int) -> None:
    said = f"Like so:\n```\n{form.text}\n```\nDone."
    assert heard_streaming(stream(*deltas(said, size)), policy(tools=False)).content == said


@looped("form", FORMS, in_groups_of=40)
@looped("size", CUTS)
@pytest.mark.parametrize("tools", [True, False])
def test_an_answer_that_came_as_reasoning_is_speech_too(form: Form, size: int, tools: bool) -> None:
    """With thinking off some builds put the answer there (vLLM #53284)."""
    rules = policy(tools=tools, reasoning_is_answer=True)
    for before in ("", "Hi.\n"):
        said = [{"reasoning": delta} for delta in deltas(before + form.text, size)]
        heard = heard_streaming(stream(*said), rules)
        assert "SECRET" not in heard.content and names(heard) == (form.calls if tools else ())
        assert heard.content.strip() == before.strip() or heard.calls  # beside a call it stays a thought
        assert (heard.error == FILTERED) is (not before and not heard.calls)


PROSE = [
    "Use the <tool_call> tag to begin a call.",
    "It is called <tool_call>",
    "The `<tool_calls>` and `[TOOL_CALLS]` tags begin several.",
    'The "<tool_call>" tag begins one, and "[TOOL_CALLS]" several.',
    "Mistral's [TOOL_CALLS] token is special.",
    "The token is [TOOL_CALLS].",
    "Llama writes <|python_tag|> before a call.",
    "In HTML one writes &lt;tool_call&gt; with entities, and &amp; too.",
    "AT&T & <3 & &lt;", "&amp;lt;b&amp;gt; &amp;amp; \uff1cb\uff1e \uff1c", "1\uff1c2 \u200b<\u200b",
    "<think about it>", "a<think = 1", "map[{", "it's a[{x}]",
    "[1] is a note, [TOOL] is none, [T]",
    "{}", "[]", "[ ]", "{ }", "{", "[", "[[1, 2], [3]]", "[1, 2, 3]", '["a", "b"]',
    '{"answer": 42}',
    '{"name": "Anna", "age": 7}',
    '{"name": "Anna"}',
    '{"name": "Anna", "parameters": [1]}',
    '{"arguments": "none"}',
    '{"type": "fruit", "name": "apple"}',
    '[{"name": "Anna", "id": 5}, {"name": "Ben", "id": 6}]',
    '{"id": 1, "index": {"name": "x"}}',
    '{\n  "name": "Anna",\n  "children": [\n    {"name": "Ben", "age": 5}\n  ]\n}',
    '[\n  {"title": "a"},\n  {"title": "b"}\n]',
    "{'name': 'Anna', 'age': 7}",
    "[it's] and {don't}",
    "{name: Anna}",
    "[a link](https://example.org)",
    "As in `" + OBJECT + "`.",
    "A call looks like " + OBJECT + " there.",
    "A call looks like " + OBJECT + ".",
    '"' + OBJECT + '" is one.', "(" + OBJECT + ")",
    "[print(x=1)](https://example.org) is a link.", "[now()](https://example.org)",
    "[web_search(query='x')] is Python's form.", "So it is [web_search(query='x')] there.",
    "See [print(1)] and [foo].", "[see(1), so]", "[note: (a)]", "[a(b", "x[now()]", "a[0][now()]",
    "{name: Anna}, {name}", "{name: Anna, age: 7}", "{tool: hammer, action: hit}", "{a: {name: x, arguments: {}}}",
    '{"a": {"name": "now", "arguments": {}}}\n', '{\n "a": 1,\n "b": {"name": "now", "arguments": {}}\n}',
    "{'a': {'name': 'now', 'arguments': {}}}", "{it's}", "{'", "{\"", "[a", "{n", "{name", "{name:", "[now",
    "A tool is {name: 'search', parameters: {type: 'object'}}\nmore", "Set {action: walk, input: {x: 1} and go on\nto\n\nthe end.",
    "Write it as {name: your name, then a dot.\n\nMore.", "[see(page=5) and the rest of it.\n\nMore.",
    "[see(page=5), and\n  \n\t\r\nMore.", "{name: a,\r\n\r\nb}", "Or {type: x if y. And more.", "{name: it's what we don't like to say",
    "{name: " + "\u4f60\u597d" * 99 + "}", "{\n\nname: a}", "[\n\nsee(page=5) or so it goes", "{name: 'a' or \"b\" or 'c' or 'd' or 'e'}",
    "~~~\n" + OBJECT + "\n~~~",
    "```json\n[\n" + OBJECT + "\n]\n```\n",
    "Sets are written {a, b}.\n{a} is one.\n[x] too.\n",
]  # fmt: skip


@looped("said", PROSE)
@looped("size", CUTS)
@pytest.mark.parametrize("tools", [True, False])
def test_prose_code_and_other_json_stay_text_to_the_letter(said: str, size: int, tools: bool) -> None:
    for before in ("", "Hi.\n"):
        data = stream(*deltas(before + said, size))
        heard = heard_streaming(data, policy(tools=tools))
        assert (heard.content, heard.finish, heard.calls) == (before + said, "stop", [])
        assert heard_whole(data, policy(tools=tools, guard=UNBOUNDED)).content == before + said


INLINE = [
    ("Sure: " + OBJECT, "Sure: ", ("web_search",)),
    ("Sure. " + OBJECT + "\nBye.", "Sure. Bye.", ("web_search",)),
    ("- " + OTHER, "- ", ("now",)),
    (f"Sure:{OBJECT}", "Sure:", ("web_search",)),
    (f"One: {OBJECT} {OTHER}", "One: ", ("web_search", "now")),
    (f"One: {OBJECT}; {OTHER}", "One: ", ("web_search", "now")),
    (f"Sets are {{a, b}}. Now {OTHER}", "Sets are {a, b}. Now ", ("now",)),
    (f'{{"a": 1}} {OTHER}', '{"a": 1} ', ("now",)),
    (f"Sure: [{OBJECT}, {OTHER}]  ", "Sure: ", ("web_search", "now")),
    ("Sure: [web_search(query='SECRET'), now()]", "Sure: ", ("web_search", "now")),
    ("Sure: {name: 'web_search', arguments: {query: 'SECRET'}}", "Sure: ", ()),
    ("Sure: " + OBJECT.replace('"SECRET"', "SECRET"), "Sure: ", ()),
    (f"functools[{OBJECT}]", "functools", ("web_search",)),
    (f"now[{OBJECT}]", "now", ("web_search",)),
    (f"no{OBJECT}", "no", ("web_search",)),
    (f"now\n{OBJECT}", "now\n", ("web_search",)),
    ("now(\nweb_search(query='SECRET')", "now(\n", ("web_search",)),
    (r"Sure: {\"name\": \"web_search\", \"arguments\": {\"query\": \"SECRET\"}}", "Sure: ", ()),
    ("Sure: " + OBJECT + "</tool_call>", "Sure: ", ("web_search",)),
    ("Sure: " + OBJECT + "<think>so</think>", "Sure: ", ("web_search",)),
    ("Sure: " + OBJECT + "[THINK]so[/THINK]", "Sure: ", ("web_search",)),
    (f"Sure: {OBJECT} [TOOL_CALLS][{OTHER}]", "Sure: ", ("web_search", "now")),
    (f"{{{OBJECT}", "{", ("web_search",)),
    (f"[a[{OBJECT}]", "[a", ("web_search",)),
    ("[[web_search(query='SECRET')]", "[", ("web_search",)),
    ("Sure: [web_search('SECRET')]", "Sure: ", ()),
    ("[web_search('SECRET')]", "", ()),
    ("[web_search(query=SECRET)]", "", ()),
    ("[web_search(query='SECRET', query='SECRET')]", "", ()),
]


@looped("size", CUTS)
@pytest.mark.parametrize("said, heard, calls", INLINE)
def test_a_call_behind_words_in_its_line_is_one(
    said: str, heard: str, calls: tuple[str, ...], size: int
) -> None:
    for rules in (policy(), policy(guard=UNBOUNDED)):
        got = heard_streaming(stream(*deltas(said, size)), rules)
        assert (got.content, names(got)) == (heard, calls)
        assert got.error == (None if heard or calls else FILTERED)


@looped("size", CUTS)
@pytest.mark.parametrize("said", ["Sure: " + OBJECT, f"Sure: [{OBJECT}, {OTHER}]", f"Sure:{OBJECT}\n"])
def test_without_tools_json_behind_words_is_taken_out_too(said: str, size: int) -> None:
    assert heard_streaming(stream(*deltas(said, size)), policy(tools=False)).content.strip() == "Sure:"


@looped("size", CUTS)
@pytest.mark.parametrize(
    "said",
    [
        "It is [print('x', end='')]",
        "So [foo(a=1)]",
        "[web_search('SECRET')]",
        "[f(x)]",
        "[Sources()]",
        "[main()]\nso",
    ],
)
def test_pythons_form_of_no_tool_is_code_inside_a_line_or_without_names(said: str, size: int) -> None:
    assert heard_streaming(stream(*deltas(said, size)), policy(tools=False)).content == said


@looped("size", CUTS)
@pytest.mark.parametrize("gap", ["", "\n", "\n\n", " ", "\r\n"])
@pytest.mark.parametrize("before", ["", "Hi.", "Hi.\n"])
@pytest.mark.parametrize("form", [OBJECT, "[web_search(query='SECRET')]", f"<tool_call>{OBJECT}</tool_call>"])
def test_behind_an_engines_own_call_the_next_one_in_the_text_is_found(
    form: str, before: str, gap: str, size: int
) -> None:
    own = {
        "tool_calls": [
            {"index": 0, "id": "c", "type": "function", "function": {"name": "now", "arguments": "{}"}}
        ]
    }
    for rules in (policy(), policy(guard=UNBOUNDED)):
        data = stream(*deltas(before, 1), own, *deltas(gap + form, size), finish="tool_calls")
        got = heard_streaming(data, rules)
        assert (got.content, names(got)) == (before, ("now", "web_search"))


@looped("size", CUTS)
@pytest.mark.parametrize(
    "said, heard, calls",
    [
        (f"So.\nAction: web_search\nAction Input: {QUERY}", "So.\n", ("web_search",)),
        (f"Action: web_search\r\n\nAction Input : {QUERY}\nBye.", "Bye.", ("web_search",)),
        (
            f"Action: now\nAction Input: {{}}\n\nAction: web_search\nAction Input: {QUERY}",
            "",
            ("now", "web_search"),
        ),
        ("Hi.\nAction: now\nAction Input: the SECRET\nBye.", "Hi.\nBye.", ()),
        ('Hi.\nAction: now\nAction Input: {"x": SECRET}\nBye.', "Hi.\nBye.", ()),
        ("Hi.\nAction: now\n", "Hi.\n", ()),
        ("Hi.\nAction: now\nAction Inp", "Hi.\n", ()),
    ],
)
def test_a_call_in_reacts_form_is_one(said: str, heard: str, calls: tuple[str, ...], size: int) -> None:
    got = heard_streaming(stream(*deltas(said, size)), policy())
    assert (got.content, names(got)) == (heard, calls) and "SECRET" not in got.content


@looped("size", CUTS)
@pytest.mark.parametrize(
    "said",
    ["Action plan: now.", "A", "Action", "Actions speak.", "Action: now is here.", "Action: nowhere\nAction Input: x", "Action: now\nand so on", "It is\nAction: get_date\nAction Input: x", "The line Action: now\nAction Input: x", "```\nAction: now\nAction Input: x\n```\n"],
)  # fmt: skip
def test_words_that_begin_as_reacts_form_does_stay_text(said: str, size: int) -> None:
    for rules in (policy(), policy(tools=False)):
        assert heard_streaming(stream(*deltas(said, size)), rules).content == said


@looped("size", CUTS)
def test_of_reacts_form_that_was_cut_nothing_is_heard(size: int) -> None:
    said = f"Hi.\nAction: web_search\nAction Input: {QUERY[:-1]}"
    for finish in ("length", None):
        got = heard_streaming(stream(*deltas(said, size), finish=finish, done=finish is not None), policy())
        assert (got.content, names(got)) == ("Hi.\n", ())


@looped("size", CUTS)
@pytest.mark.parametrize("tools", [True, False])
@pytest.mark.parametrize(
    "said, heard",
    [
        ("Hi.\n```tool_code\nSECRET\n```\nBye.", "Hi.\nBye."),
        ("Hi.\n````tool_outputs\nSECRET\n```\nSECRET\n````\nBye.", "Hi.\nBye."),
        ("Hi.\n```tool_code\nSECRET", "Hi.\n"),
        ("Hi.\n```tool_code", "Hi.\n"),
        ("Hi.\n```toml\na = 1\n```\nBye.", None),
        ("Hi.\n```tool_code is a fence\nx\n```\n", None),
        ("Write ```tool_code\nthere.", None),
        ("````\n```tool_code\nx\n```\n````\n", None),
    ],
)
def test_a_fence_that_calls_itself_a_call_is_taken_out(
    said: str, heard: str | None, tools: bool, size: int
) -> None:
    assert heard_streaming(stream(*deltas(said, size)), policy(tools=tools)).content == (heard or said)


@looped("size", CUTS)
@pytest.mark.parametrize(
    "before", ["<function=now>\n</function>", OTHER, "<think>x</think>", f"<tool_call>{OTHER}</tool_call>"]
)
def test_behind_what_is_no_speech_a_fence_begins_its_line(before: str, size: int) -> None:
    said = f"So: {before}\n```json\n<tool_call>{OBJECT}</tool_call>\n```\nBye."
    heard = heard_streaming(stream(*deltas(said, size)), policy())
    assert "web_search" not in names(heard) and "SECRET" not in heard.content
    assert heard.content.endswith("\nBye.")


@looped("size", CUTS)
def test_behind_an_engines_own_call_a_line_begins(size: int) -> None:
    """So what stands there is a call, whatever follows it in its line."""
    own = {
        "tool_calls": [
            {"index": 0, "id": "c", "type": "function", "function": {"name": "now", "arguments": "{}"}}
        ]
    }
    got = heard_streaming(stream("Hi.", own, *deltas(OBJECT + " so", size), finish="tool_calls"), policy())
    assert "SECRET" not in got.content and names(got) == ("now", "web_search")


NAMED = [
    Form("a name and named arguments", "web_search(query='SECRET')"),
    Form("a name and no arguments", "now()", ("now",)),
    Form("named arguments over lines", 'web_search(\n  query = "SECRET",\n)'),
    Form("a name and an object in parentheses", f"web_search({QUERY})"),
    Form("a name and an object", f"web_search {QUERY}"),
    Form("a name and an object over lines", 'web_search {\n  "query": "SECRET"\n}'),
    Form("a name and an object, close", f"web_search{QUERY}"),
    Form("a name, a colon and an object", f"web_search: {QUERY}"),
    Form("indented", f"  web_search: {QUERY}  "),
    Form("a name and a whole call", f"web_search: {OBJECT}"),
    Form("a whole call in parentheses", f"web_search({OBJECT})"),
    Form("two in two lines", "web_search(query='SECRET')\nnow()", ("web_search", "now")),
    Form("two in one line", "now(); web_search(query='SECRET')", ("now", "web_search")),
    Form("a tag in an argument", "web_search(query='<think>SECRET</think>')"),
    Form("arguments by position", "web_search('SECRET')", ()),
    Form("an argument without quotes", "web_search(query=SECRET)", ()),
    Form("single quotes in an object", "web_search {'query': 'SECRET'}", ()),
    Form("an object without quotes", "web_search: {query: SECRET}", ()),
    Form("an argument twice", "web_search(query='SECRET', query='SECRET')", ()),
]

BEYOND_A_LINE = ("two in two lines", "a tag in an argument", "a name and a whole call")
"""Forms of which a part is no text, wherever the rest of it stands."""


@looped("form", NAMED, in_groups_of=40)
@looped("size", CUTS)
def test_the_name_of_a_tool_that_begins_its_line_makes_a_call(form: Form, size: int) -> None:
    for before, after in (("", ""), ("Hi.\n", ""), ("Hi.\n", "\n\nBye."), ("<think>a</think>", "\n")):
        data = stream(*deltas(before + form.text + after, size))
        for heard in (
            heard_streaming(data, policy()),
            heard_whole(data, policy(guard=UNBOUNDED, after=UNBOUNDED)),
        ):
            assert "SECRET" not in heard.content and "web_search" not in heard.content
            assert names(heard) == (form.calls if heard.error is None else ())
            assert (heard.error == FILTERED) is (not form.calls and "Hi" not in before)
            assert heard.content.startswith("Hi.") or "Hi" not in before
            assert "Bye" not in after or heard.content.endswith("Bye.")
            for name, arguments in heard.calls:
                assert name == "now" or "SECRET" in json.loads(arguments)["query"]


@looped("form", [f for f in NAMED if f.name not in BEYOND_A_LINE], in_groups_of=40)
@looped("size", CUTS)
def test_without_that_tool_or_with_more_words_in_its_line_it_is_text(form: Form, size: int) -> None:
    other = form.text.replace("web_search", "get_moon").replace("now", "get_sun")
    fence = f"```\n{form.text}\n```\n"
    for said, tools in (
        (other, True),
        (form.text, False),
        ("So: " + form.text, True),
        (fence, True),
        ("`" + form.text, True),
    ):
        heard = heard_streaming(stream(*deltas(said, size)), policy(tools=tools))
        assert (heard.content, heard.calls) == (said, [])


NAMED_PROSE = [
    "now", "now.", "now, web_search", "now is the time", "now (as ever) it is", "now(here", "now(is the time) so", "now: it is",
    "now {", "now {x", "now {x} y", "now() tells the time.", "web_search('x') looks for x.", "web_search: a tool", "web_searching()",
    "web_search(query) is its form", 'now: "quoted" {"a": 1} so', "now\nnow\nweb_se\nn\n", "now\t\t\t\t\t{}", "now : : {}", "no(x=1)", "nowadays(x=1)",
]  # fmt: skip


@looped("said", NAMED_PROSE)
@looped("size", CUTS)
@pytest.mark.parametrize("finish", ["stop", "length"])
def test_prose_that_begins_with_a_tools_name_stays_text_to_the_letter(
    said: str, finish: str, size: int
) -> None:
    for before in ("", "Hi.\n"):
        heard = heard_streaming(stream(*deltas(before + said, size), finish=finish), policy())
        assert (heard.content, heard.calls) == (before + said, [])


@pytest.mark.parametrize(
    "said, most",
    [("Search for it", 1), ("nor", 3), ("now it", 5), ("now: so", 6), ("now(is it)", 8), ("- now", 1)],
)
def test_ordinary_text_waits_for_a_tools_name_alone(said: str, most: int) -> None:
    assert first_shown(policy(), said) <= most


@looped("size", CUTS)
@pytest.mark.parametrize("finish", ["length", "stop", None])
@pytest.mark.parametrize("said", ["web_search(query='SECRET", 'web_search: {"query": "SECRET'])
def test_of_a_named_call_that_was_cut_nothing_is_heard(said: str, finish: str | None, size: int) -> None:
    data = stream("Hi.\n", *deltas(said, size), finish=finish, done=bool(finish))
    assert heard_streaming(data, policy()).content == "Hi.\n"


@looped("size", CUTS)
def test_where_json_was_asked_for_no_name_makes_a_call(size: int) -> None:
    heard = heard_streaming(stream(*deltas("now()", size)), policy(json_asked=True))
    assert (heard.content, heard.calls) == ("now()", [])


THOUGHTS = [
    ("&lt;think&gt;SECRET&lt;/think&gt;Hi.", "Hi."),
    ("&LT;Think&GT;SECRET&lt;/THINK&gt;Hi.", "Hi."),
    ("&#60;think&#62;SECRET&#x3c;/think&#x3e;Hi.", "Hi."),
    ("<ThInK>SECRET</tHiNk>Hi.", "Hi."),
    ("<think>SECRET&lt;/think&gt;Hi.", "Hi."),
    ("&lt; think &gt;SECRET&lt;/ think&gt;Hi.", "Hi."),
    ("&lt;think/&gt;Hi.", "Hi."),
    ("[think]SECRET[/Think]Hi.", "Hi."),
    ("\uff1cthink\uff1eSECRET\uff1c/think\uff1eHi.", "Hi."),
    ("\uff1c think\uff1eSECRET</\uff0fthink>SECRET\uff1c\uff0fTHINK >Hi.", "Hi."),
    ("<th\u200bink>SECRET</thin\u200d\u200ck>Hi.", "Hi."),
    ("<\u2060think\xad>SECRET<\ufeff/think>Hi.", "Hi."),
    ("&amp;lt;think&amp;gt;SECRET&amp;lt;/think&amp;gt;Hi.", "Hi."),
    ("&amp;amp;#60;think&amp;#62;SECRET&amp;LT;/think&GT;Hi.", "Hi."),
    ("&#060;think&#00062;SECRET&#x003c;/think&#X03E;Hi.", "Hi."),
    ('<think a="1" b=2>SECRET</think>Hi.', "Hi."),
    ("<think reason='" + "x" * 100 + "'>SECRET</think>Hi.", "Hi."),
    ("<think lang=en>SECRET</think>Hi.", "Hi."),
    ("<THOUGHT>SECRET</Thought>Hi.", "Hi."),
]


@looped("size", CUTS)
@pytest.mark.parametrize("said, heard", THOUGHTS)
@pytest.mark.parametrize("tools", [True, False])
def test_a_thought_is_one_in_any_case_and_escaped(said: str, heard: str, size: int, tools: bool) -> None:
    assert heard_streaming(stream(*deltas(said, size)), policy(tools=tools)).content == heard


ANSWERS = [OBJECT, '["So it is written by a model:", "<tool_call>{}</tool_call>"]', '["<tool_call>{}</tool_call>", "[TOOL_CALLS]"]', 'So:\n["<tool_call>{}</tool_call>"]', f"[{OBJECT}]", "\n" + OBJECT, '{"text": "<tool_call>{} [TOOL_CALLS]now[ARGS]{}</tool_call>"}', '{"a": [\n{"name": "now", "arguments": {}}\n]}']  # fmt: skip


@looped("size", CUTS)
@pytest.mark.parametrize("said", ANSWERS)
@pytest.mark.parametrize("tools", [True, False])
def test_where_json_was_asked_for_json_is_the_answer(said: str, size: int, tools: bool) -> None:
    heard = heard_streaming(stream(*deltas(said, size)), policy(tools=tools, json_asked=True))
    assert (heard.content, heard.calls) == (said.lstrip("\n"), [])
    tagged = f"<tool_call>{OBJECT}</tool_call>"
    raw = heard_streaming(stream(*deltas(tagged, size)), policy(tools=tools, json_asked=True))
    assert names(raw) == (("web_search",) if tools else ()) and raw.content == ""


@pytest.mark.parametrize(
    "family, text",
    [
        ("qwen", f"<tool_call>{OBJECT}</tool_call>"),
        ("json", OBJECT),
        ("mistral", "[TOOL_CALLS]now[ARGS]{}"),
        ("tool_code", "```tool_code\nx\n```\n"),
    ],
)
def test_a_family_that_is_switched_off_is_text(family: str, text: str) -> None:
    """Where `json` is on, a call in a tag that is not looked for is still a call in JSON."""
    rules = msgspec.structs.replace(
        policy(), call_families=tuple(name for name in CALL_FAMILIES if name not in (family, "json"))
    )
    assert heard_streaming(stream(text), rules).content == text


# How long something is held.


def first_shown(rules: StreamPolicy, text: str) -> int:
    """How many characters had been fed one by one when the first word of the last line came out."""
    pipeline, said = Pipeline(rules), ""
    for at, character in enumerate(text):
        said += "".join(e.text for e in pipeline.feed(chunk(character)) if isinstance(e, Text))
        if said.strip():
            return at + 1
    return len(text) + 1


@pytest.mark.parametrize(
    "text, most",
    [("Hello there.", 1), ("1. One", 1), ('"Hi', 1), ("(a)", 1), ("a [1]", 1), ("to you", 3), ("tea", 2), ("It is", 1), ("Commentary", 1), ("[1] is", 2), ("[a]", 3), ("is {a}", 1), ("is [a]", 1),
     ('{"answer": 42, "more": 1}', 9), ('[{"answer": 42}]', 10), ("{b}", 2), ("{a}", 3), ("is {b}", 1), ("& so", 2)],
)  # fmt: skip
@pytest.mark.parametrize("tools", [True, False])
def test_ordinary_text_is_not_delayed(text: str, most: int, tools: bool) -> None:
    assert first_shown(policy(tools=tools), text) <= most


HELD = 1 << 16
"""Characters of JSON that may be held; written out, so that a change of the bound is noticed."""


@pytest.mark.parametrize("begun", ['{"arguments": "', '[{"input": "', "{" + " " * HELD])
@pytest.mark.parametrize("size", [1000, 1 << 20])
def test_what_is_held_of_json_that_may_be_a_call_is_bounded(begun: str, size: int) -> None:
    pipeline, said, heard = Pipeline(policy()), "", ""
    for delta in deltas(begun + "a" * 2 * HELD, size):
        said += delta
        heard += "".join(e.text for e in pipeline.feed(chunk(delta)) if isinstance(e, Text))
        assert said.startswith(heard) and len(said) - len(heard) <= HELD + size
    assert heard == said


@looped("size", CUTS)
@pytest.mark.parametrize(
    "said, heard",
    [('{"name": "web_search", "argum', ""), ('[{"name": "web_search"', ""), ("{", "{"), ("[", "["), ('{"na', '{"na'),
     (OBJECT[:-1], ""), ("{" + OBJECT[:-1], "{"), ("[TOOL_CALLS]web_se", ""), ("<|python_tag|>{", "")],
)  # fmt: skip
def test_of_a_call_that_was_cut_nothing_is_heard(said: str, heard: str, size: int) -> None:
    for finish in ("length", None):
        got = heard_streaming(
            stream("Hi.\n", *deltas(said, size), finish=finish, done=bool(finish)), policy()
        )
        assert got.content == "Hi.\n" + heard and not got.calls


UNCLOSED = [
    "Write it as {name: your name, then a dot.\n\n",
    "[see(page=5) and the rest of it.\n\n",
    "[see(page=5)\n\n",
    "[see(page=5, [[['a'],\n \t\r\n",
    "It is {type: x if y. And then it goes on.",
    "Set {action: walk, input: {x: 1} and go on",
    "Set {action: walk, input: {x: 1},",
    "{type: function, more",
    "[web_searching(query=5) and the rest of it.\n\n",
    "{type: " + "\u4f60" * 200,
    "A {type: a, " + "b, " * 700,
]


@looped("size", CUTS)
@pytest.mark.parametrize("finish", ["stop", "length", None])
@pytest.mark.parametrize("begun", UNCLOSED)
def test_a_bracket_that_nobody_closes_takes_nothing_with_it(
    begun: str, finish: str | None, size: int
) -> None:
    said = begun + "\n\nAnd so it is told." * 3
    for tools in (True, False):
        data = stream(*deltas(said, size), finish=finish, done=bool(finish))
        assert heard_streaming(data, policy(tools=tools)).content == said
        begun_only = stream(*deltas("Hi.\n" + begun, size), finish=finish, done=bool(finish))
        assert heard_streaming(begun_only, policy(tools=tools)).content == "Hi.\n" + begun


@pytest.mark.parametrize("begun", UNCLOSED[:6])
@pytest.mark.parametrize("tools", [True, False])
def test_nor_does_it_hold_what_comes_behind_it(begun: str, tools: bool) -> None:
    said = begun + " And so it is told."
    pipeline, heard = Pipeline(policy(tools=tools)), ""
    for character in said:
        heard += "".join(e.text for e in pipeline.feed(chunk(character)) if isinstance(e, Text))
    assert heard == said


@looped("size", CUTS)
@pytest.mark.parametrize(
    "said",
    [
        "[web_search(query='SECRET'",
        "[web_search(query=",
        "{name: web_search, argu",
        "{'name': 'web_search', 'arguments': {'query': 'SECRET",
        "Sure: {name: web_search, arguments: {query: 'SECRET",
    ],
)
def test_of_a_loose_call_of_a_tool_that_was_cut_nothing_is_heard(said: str, size: int) -> None:
    for finish in ("length", None):
        data = stream("Hi.\n", *deltas(said, size), finish=finish, done=bool(finish))
        assert "web_search" not in heard_streaming(data, policy()).content


def test_a_call_without_arguments_in_pythons_form_is_one_of_a_tool_only() -> None:
    assert names(heard_streaming(stream("[now()]"), policy())) == ("now",)
    assert heard_streaming(stream("[now()]"), policy(tools=False)).content == "[now()]"


@looped("size", CUTS)
def test_a_list_whose_first_call_has_no_arguments_is_one_if_another_names_some(size: int) -> None:
    for said in (
        "[now(), g(x='SECRET')]",
        "[\n now(),\n g(\n x = 'SECRET',\n ),\n]\n",
        "[ now( ) , f(), g(x=1)]",
    ):
        for finish in ("stop", None):
            data = stream(*deltas(said, size), finish=finish, done=bool(finish))
            assert heard_streaming(data, policy(tools=False)).content.strip() == ""


@looped("size", CUTS)
def test_behind_a_broken_loose_call_speech_goes_on_after_an_empty_line(size: int) -> None:
    for broken in ("{name: web_search, arguments: {query: 'a',", "[web_search(query='a',"):
        said = f"Hi.\n{broken}\n\nBye."
        assert heard_streaming(stream(*deltas(said, size)), policy()).content.split() == ["Hi.", "Bye."]


@pytest.mark.parametrize(
    "said, heard",
    [
        (OBJECT[:-1], ""),
        (OBJECT[:-4], ""),
        ('{"name": "web_search"', '{"name": "web_search"'),
        ('{"a', '{"a'),
        ("[TOOL_CALLS]web", ""),
    ],
)
def test_a_call_that_is_not_finished_is_dropped_and_other_json_is_not(said: str, heard: str) -> None:
    assert heard_streaming(stream("Hi.\n" + said), policy()).content == "Hi.\n" + heard


def test_behind_a_broken_bare_call_speech_goes_on_in_the_next_line() -> None:
    broken = '{"name": "web_search", "arguments": {"query": SECRET}}'
    assert heard_streaming(stream(f"{broken}\nBye."), policy()).content.strip() == "Bye."
    over_lines = '{"name": "web_search",\n "arguments": {\n  "query": SECRET\n }\n'
    assert heard_streaming(stream(f"{over_lines}\nBye."), policy()).content.strip() == "Bye."


def test_a_thought_in_json_that_is_no_call_is_a_thought() -> None:
    said = '{"name": "<think>SECRET</think>Anna", "arguments": "x"}'
    assert heard_streaming(stream(said), policy()).content == '{"name": "Anna", "arguments": "x"}'


# The pure reading of a JSON value.

values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)


@given(
    st.text(min_size=1, max_size=9).filter(str.isprintable),
    st.dictionaries(st.text(max_size=5), values, max_size=3),
)
def test_arguments_are_kept_to_the_letter(name: str, arguments: dict[str, object]) -> None:
    text = json.dumps(arguments, indent=1)
    value = f'{{"name": {json.dumps(name)}, "arguments": {text}}}'
    (call,) = calls_in(value)
    assert (call.name, call.arguments) == (name, text)
    assert calls_in(f"[{value},{value}]") == [call, call]


@given(values)
def test_any_other_value_holds_no_calls(value: object) -> None:
    assert calls_in(json.dumps(value)) == []
    assert calls_in(json.dumps({"name": "x", "y": value})) == []


LITERALS = [
    ("'a\\'b'", '"a\'b"'), ('"a\\"b"', '"a\\"b"'), (r"'\n\t\\'", r'"\n\t\\"'), (r"'\u0ca8\x41\q'", '"\u0ca8A\\\\q"'),
    ("1", "1"), ("-2.5e3", "-2.5e3"), ("True", "true"), ("None", "null"), ("false", "false"), ("[1, 'a',]", '[1, "a"]'),
    ("(1, 2)", "[1, 2]"), ("{'a': {\"b\": []}}", '{"a": {"b": []}}'), ("''", '""'), (r"'\ud83d\ude00'", '"\U0001f600"'),
]  # fmt: skip


@pytest.mark.parametrize("python, expected", LITERALS)
def test_a_literal_of_python_becomes_json(python: str, expected: str) -> None:
    assert python_calls(f"[f(x={python}, y=1)]") == [("f", f'{{"x": {expected}, "y": 1}}')]


@pytest.mark.parametrize(
    "python",
    ["x", "01", "1e999", "1.", "f'a'", "'a' 'b'", "a.b", "1 + 1", "{1: 2}", "{*a}", "'", r"'\ud83d'", "[" * 40 + "]" * 40,
     "__import__('os')", "lambda: 1", "1" * 400],
)  # fmt: skip
def test_what_is_no_literal_makes_no_call(python: str) -> None:
    assert python_calls(f"[f(x={python})]") == []


@pytest.mark.parametrize(
    "text",
    ["", "[", "[]", "[f]", "[f(]", "[f()", "[f()]x", "[f(1)]", "[f(x=1 y=2)]", "f()", "[f(x=1)]]", "[,]"],
)
def test_what_is_no_list_of_calls_in_pythons_form(text: str) -> None:
    assert python_calls(text) == []


@given(st.lists(st.sampled_from(["{", "[", "now(", "web_search(query=", ")", "name: ", "'name': ", "Hi: ", ";", '{"name": "now", "arguments": {}}', '"name"', ": ", '"now"', ", ", '"arguments"', "{}", "}", "]", "\n", "Hi.", "'", "<think>", "</think>", "[TOOL_CALLS]", "[ARGS]", "&lt;", "tool_call", "&gt;", "```\n", '"a": 1', "1"]), max_size=20), st.integers(1, 9), st.booleans())  # fmt: skip
def test_soup_of_json_is_heard_the_same_on_any_cut(parts: list[str], size: int, tools: bool) -> None:
    soup, rules = "".join(parts), policy(tools=tools)
    whole = heard_streaming(stream(soup), rules)
    cut = heard_streaming(stream(*deltas(soup, size)), rules)
    assert (cut.content, cut.calls, cut.error) == (whole.content, whole.calls, whole.error)


@given(
    values, st.sampled_from([None, 1]), st.integers(1, 9), st.booleans(), st.sampled_from(["", "Hi.\n", "- "])
)
def test_any_json_that_holds_no_call_is_text_to_the_letter(
    value: object, indent: int | None, size: int, tools: bool, before: str
) -> None:
    said = before + json.dumps({"k": value} if isinstance(value, dict) else value, indent=indent)
    assert heard_streaming(stream(*deltas(said, size)), policy(tools=tools)).content == said


def test_white_space_waits_for_the_first_word() -> None:
    """Alone it is nothing: of a reply that is white space and a call nothing was shown."""
    pipeline = Pipeline(policy())
    assert pipeline.feed(chunk(" ")) == pipeline.feed(chunk("\n ")) == []
    assert "".join(e.text for e in pipeline.feed(chunk("Hi")) if isinstance(e, Text)) == " \n Hi"
    assert heard_streaming(stream(" ", "\n "), policy()).content == " \n "
