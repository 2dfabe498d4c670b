"""Reads tool calls out of a text that a model wrote: each template's grammar, read whole and tolerantly. Pure.

The reply parser decides where a call begins and ends; this module says what it calls. A text in which no reading finds a
name and an object of arguments is no call.
"""

import ast
import json
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

import msgspec

from app.stream.json_value import MAX_DEPTH, NotJSON, ValueScanner, kind_of
from app.stream.schema import Tools

MAX_CALL_CHARS = 1 << 20
"""Longest text of one call; as much as one event may hold (MAX_EVENT_BYTES)."""
_OPENERS = re.compile(r"\A(?:```\w*\s*|(?:<[|\uff5c]?[\w:|]{1,64}[|\uff5c]?>\s{0,4}){1,4})(?=[\w{\[])")
"""Further markers behind the one that began a call: InternLM's <|action_start|><|plugin|>, Hunyuan's <tool_calls><tool_call>."""
_NAME = re.compile(r"[^\s<>{}\[\]()\"']{1,128}")
"""A function's: as long as requests may declare."""

NAME_KEYS = ("name", "tool", "tool_name", "function", "function_name", "action", "recipient_name")
ARGUMENT_KEYS = ("arguments", "parameters", "args", "params", "input", "tool_input", "action_input", "kwargs")
"""Names under which models write a call's name and its arguments."""
_NESTED = ("function", "tool_calls", "function_call", "tool_call", "calls")
_WRAPPED_DEPTH = 4
_PLAIN = {"name", "arguments", "parameters", "id", "type", "thought", "role", "content", *_NESTED}
"""Keys of calls, and of what holds nothing but calls."""


class Call(NamedTuple):
    """arguments: a JSON object, to the letter where the model wrote JSON."""

    name: str
    arguments: str


def read_calls(body: str, word: str, tools: Tools) -> list[Call]:
    """The calls in the text of a region, [] if it holds none. `word`: the name that the region's marker said."""
    if len(body) > MAX_CALL_CHARS:
        return []
    text = _OPENERS.sub("", body.strip())
    for grammar in (_json_calls, _element_calls, _arg_key_calls, _named_json, _gemma_calls, python_calls):
        calls = grammar(text, word, tools)
        if calls and all(map(_is_sound, calls)):
            return calls
    return []


def _is_sound(call: Call) -> bool:
    return (
        bool(_NAME.fullmatch(call.name)) and call.name.isprintable() and kind_of(call.arguments) == "object"
    )


def declared_calls(text: str, tools: Tools, own_keys: tuple[str, ...]) -> list[Call] | None:
    """Calls in JSON without a marker: an object that names a declared tool beside an object of arguments, wherever it stands.

    own_keys: an object of nothing but a name and arguments under one of these keys is a call, whatever tool it names.
    None: there are none; []: what is no JSON, or not yet, began as one.
    """
    found = [call for value in _values(text) for call in _calls_within(value, tools, 0)]
    if not found and own_keys:
        found = [call for value in _values(text) for call in _plain_calls(value, own_keys, 0)]
    found = [call for call in found if kind_of(call.arguments) == "object"]
    begun = None if kind_of(text) else _CALL_BEGUN.match(text)
    is_named = not kind_of(text) and any(one[one.lastindex or 0] in tools for one in _NAMED.finditer(text))
    return found or ([] if is_named or (begun is not None and begun[1] in own_keys) else None)


_NAMED = re.compile(
    rf'<function=([\w.-]{{1,128}})|\A\[\s*([\w.]{{1,128}})\(|"(?:{"|".join(NAME_KEYS)})"\s*:\s*"([^"\\]{{1,128}})"'
)
_CALL_BEGUN = re.compile(
    r'[\s\[]*\{\s*(?:"(?:id|type|thought|tool_call_id)"\s*:\s*"[^"]*"\s*,\s*|"(?:\w{4,8}_)?(?:calls?|function)"\s*:\s*[\[\s]*\{\s*)*'
    r'"(?:name|tool_name)"\s*:\s*"[^"]*"\s*,\s*"(\w+)"\s*:\s*["{]'
)
_FIRST_ARGUMENTS = re.compile(r'"(?:{})"\s*:\s*(?=\{{)'.format("|".join(ARGUMENT_KEYS)))


def cut_call(body: str, word: str, tools: Tools) -> Call | None:
    """A call of a declared tool that was cut off, with as much of its JSON as there is."""
    named = _NAMED.search(body)
    name = word or (named[named.lastindex or 0] if named else "")
    if name not in tools:
        return None
    begin = _FIRST_ARGUMENTS.search(body)
    return Call(name, "" if begin is None else body[begin.end() :])


# JSON: {"name": …, "arguments": {…}}, also nested, in an array, or several in a row.


def _object(raw: bytes) -> dict[str, msgspec.Raw] | None:
    """An object's members, each to the letter; None for anything else, and for one that says a key twice."""
    try:
        fields = msgspec.json.decode(raw, type=dict[str, msgspec.Raw])
        pairs = json.loads(raw, object_pairs_hook=list, parse_int=str, parse_float=str)
    except (ValueError, RecursionError):
        return None
    return fields if len(pairs) == len(fields) else None


def _values(text: str) -> Iterator[bytes]:
    """The objects in one or several values in a row; those of an array one by one."""
    at = 0
    while (found := _OPENS.search(text, at)) is not None:
        scanner = ValueScanner()
        try:
            end = scanner.feed(text, found.start())
        except NotJSON:
            return
        value = text[found.start() : end] + ("" if scanner.done else scanner.missing() or "")
        raw = value.encode(errors="replace")
        if value.startswith("{"):
            yield raw
        else:
            try:
                yield from (bytes(item) for item in msgspec.json.decode(raw, type=list[msgspec.Raw]))
            except msgspec.DecodeError:
                return
        at = end


_OPENS = re.compile(r"[{\[]")


def _text_of(raw: msgspec.Raw | None) -> str | None:
    """The string in a JSON string."""
    try:
        return None if raw is None else msgspec.json.decode(raw, type=str)
    except msgspec.DecodeError:
        return None


def _arguments_of(fields: dict[str, msgspec.Raw]) -> str | None:
    """The arguments as a JSON object: none and null are `{}`, and what was encoded twice is decoded once. None: there are two, or no object."""
    found = [fields[key] for key in ARGUMENT_KEYS if key in fields]
    if len(found) > 1:
        return None
    said = bytes(found[0]).decode(errors="replace").strip() if found else "{}"
    if said.startswith('"'):
        said = (_text_of(found[0]) or "").strip()
    return "{}" if said in ("", "null") else said if said.startswith("{") else None


def _call(fields: dict[str, msgspec.Raw], tools: Tools | None) -> Call | None:
    """The call that an object is by itself; with `tools` only of one of these."""
    said = (_text_of(fields.get(key)) for key in NAME_KEYS)
    names = [name for name in said if name is not None and (tools is None or name in tools)]
    arguments = _arguments_of(fields)
    if not names or arguments is None:
        return None
    return Call(names[0], arguments)


def _calls_within(raw: bytes, tools: Tools | None, depth: int) -> Iterator[Call]:
    """The call that an object is, or those that it holds; with `tools` only of these, and only beside arguments."""
    fields = _object(raw)
    if fields is None:
        return
    is_call = tools is None or (any(key in fields for key in ARGUMENT_KEYS) and not _is_declaration(fields))
    if is_call and (call := _call(fields, tools)) is not None:
        yield call
    elif tools and len(fields) == 1 and (name := next(iter(fields))) in tools:  # {"f": {"x": 1}}
        yield Call(name, bytes(fields[name]).decode(errors="replace").strip())
    elif depth < _WRAPPED_DEPTH:
        for value in _nested(fields):
            yield from _calls_within(value, tools, depth + 1)


def _nested(fields: dict[str, msgspec.Raw]) -> Iterator[bytes]:
    """The objects under the keys that hold calls."""
    for key in _NESTED:
        yield from _values(bytes(fields[key]).decode(errors="replace")) if key in fields else ()


def _is_declaration(fields: dict[str, msgspec.Raw]) -> bool:
    """A tool's declaration has a schema for its parameters."""
    schema = _object(bytes(fields["parameters"])) if "parameters" in fields else None
    return "description" in fields or (schema is not None and _text_of(schema.get("type")) == "object")


def _plain_calls(raw: bytes, keys: tuple[str, ...], depth: int) -> Iterator[Call]:
    """The call that an object is which has nothing that a call has not; or those in one that has nothing but calls."""
    fields = _object(raw)
    if fields is None or not set(fields) <= _PLAIN or _is_declaration(fields):
        return
    if not set(keys).isdisjoint(fields):
        call = _call(fields, None)
        yield from () if call is None else (call,)
    elif depth < _WRAPPED_DEPTH:
        for value in _nested(fields):
            yield from _plain_calls(value, keys, depth + 1)


def _json_calls(text: str, word: str, tools: Tools) -> list[Call]:
    """Behind a marker: every value must be a call, whatever tool it names."""
    if word or not text.startswith(("{", "[")):
        return []
    found = [list(_calls_within(raw, None, 0)) or list(_calls_within(raw, tools, 0)) for raw in _values(text)]
    return [call for calls in found for call in calls] if all(found) else []


# Elements: Qwen's <function=NAME><parameter=KEY>VALUE</parameter></function>, with or without <tool_call>; Anthropic's,
# MiniMax's and DeepSeek V3.2's <invoke name="NAME"><parameter name="KEY">; Llama's <function=NAME>{…}</function>.

_PREFIXED = r"(?:\w{1,32}:|[|\uff5c]\w{2,8}[|\uff5c])?"
_FUNCTION = re.compile(
    r"<function=\s*([^\s<>]{1,128})\s*>?"
    rf"|<(?:{_PREFIXED}invoke|function)\s{{1,4}}name\s?=\s?[\"']?([^\"'<>\s]{{1,128}})[\"']?[^<>]{{0,64}}>"
)
_FUNCTION_ENDS = re.compile(rf"</function>|(?=<function=)|</{_PREFIXED}invoke>")
_PARAMETER = re.compile(
    r"<parameter=\s*([^\n<>]{1,256}?)\s*>"
    rf"|<{_PREFIXED}param(?:eter)?\s{{1,4}}name\s?=\s?[\"']?([^\"'<>]{{1,256}}?)[\"']?(?:\s[^<>]{{0,64}})?>"
)
_PARAMETER_ENDS = re.compile(rf"</{_PREFIXED}param(?:eter)?>|(?=<parameter=)")


def _elements(text: str, begins: re.Pattern[str], ends: re.Pattern[str]) -> Iterator[tuple[str, str]]:
    """What stands in the group of each opening tag, and the text up to its end or the text's; linear."""
    at = 0
    while (opening := begins.search(text, at)) is not None:
        closing = ends.search(text, opening.end())
        end = None if closing is None else closing.start()
        yield opening[opening.lastindex or 0], text[opening.end() : end]
        if closing is None:
            return
        at = closing.end()


def _typed(name: str, pairs: list[tuple[str, str]], tools: Tools) -> Call:
    """Arguments that are written as texts become JSON by the tool's schema. Of a repeated key the last value counts."""
    said = (
        f"{json.dumps(key, ensure_ascii=False)}: {tools.encode(name, key, value)}"
        for key, value in dict(pairs).items()
    )
    return Call(name, "{" + ", ".join(said) + "}")


def _element_calls(text: str, word: str, tools: Tools) -> list[Call]:
    calls = []
    for name, inner in [(word, text)] if word else _elements(text, _FUNCTION, _FUNCTION_ENDS):
        pairs = [  # without the one line break that the template puts on either side
            (key, said.removeprefix("\n").removesuffix("\n"))
            for key, said in _elements(inner, _PARAMETER, _PARAMETER_ENDS)
        ]
        if inner.lstrip().startswith("{"):
            calls.append(Call(name, inner.strip()))
        elif pairs or not re.sub(r"</?\w+>", "", inner).strip():
            calls.append(_typed(name, pairs, tools))
        else:
            calls.append(Call(name, ""))  # unsound
    return calls


# GLM's NAME<arg_key>k</arg_key><arg_value>v</arg_value>.

_ARG = re.compile(r"<(?:longcat_|ifm\|)?arg_(key|value)(?::\w{1,32})?>")
_ARG_ENDS = re.compile(r"</(?:longcat_|ifm\|)?arg_(?:key|value)(?::\w{1,32})?>")
_BARE_NAME = re.compile(r"([\w.:/-]{1,128})(?:<tool_sep(?::\w{1,32})?>)?")


def _arg_key_calls(text: str, word: str, tools: Tools) -> list[Call]:
    name = _BARE_NAME.match(text)
    if name is None or word:
        return []
    rest = text[name.end() :].strip()
    said = list(_elements(rest, _ARG, _ARG_ENDS))
    if [kind for kind, _ in said] != ["key", "value"] * (len(said) // 2):
        return []
    pairs = [(key.strip(), value.strip()) for (_, key), (_, value) in zip(said[::2], said[1::2], strict=True)]
    if rest and not (pairs and rest.startswith("<")):
        return []
    return [_typed(name[1], pairs, tools)] if pairs or name[1] in tools else []


# A name, something special, and JSON: Mistral, Kimi K2, DeepSeek, gpt-oss.

_NAMED_JSON = re.compile(
    r"(?:function(?!s))?(?:<[^<>{}]{1,64}>\s{0,4}){0,4}(?:functions\.)?(?P<name>[\w.-]{1,128}?)(?::\d+)?"
    r"(?:\[CALL_ID\][\w-]*)?(?:\[ARGS\]|<[^<>{}]{1,64}>|\s|```(?:json)?){0,8}(?=\{)"
)


def _named_json(text: str, word: str, tools: Tools) -> list[Call]:
    if word and text.startswith("{"):
        text = f"{word} {text}"
    calls, at = [], 0
    text = text.lstrip("`")
    while (found := _NAMED_JSON.search(text, at)) is not None:
        scanner = ValueScanner()
        try:
            end = scanner.feed(text, found.end())
        except NotJSON:
            return []
        if found["name"] == "function" or scanner.missing() is None:
            return []
        calls.append(Call(found["name"], text[found.end() : end] + (scanner.missing() or "")))
        at = end
        if len(calls) > MAX_DEPTH:
            return []
    return calls


# Gemma 4's and FunctionGemma's call:NAME{key:<escape>text<escape>,other:[1]}: JSON but for its strings and bare keys.

_GEMMA = re.compile(r'"call":"([\w.-]{1,128})"(?=\{)')
_GEMMA_WORD = re.compile(
    r"(<escape>|<\|\"\|>)(.*?)\1|[^\s,:<>{}\[\]\"](?:[^,:<>{}\[\]\"]*[^\s,:<>{}\[\]\"])?", re.DOTALL
)


def _gemma_calls(text: str, word: str, tools: Tools) -> list[Call]:
    return (
        _named_json(_GEMMA.sub(r"\1", _GEMMA_WORD.sub(_quoted, text)), "", tools) if "call:" in text else []
    )


def _quoted(word: re.Match[str]) -> str:
    said = word[2] if word[1] else word[0]
    return said if not word[1] and kind_of(said) else json.dumps(said, ensure_ascii=False)


# Python's form: [f(x=1), g()], f(x=1), one call a line.


class _JSONWords(ast.NodeTransformer):
    """OLMo 3 writes `true`, `false` and `null`."""

    def visit_Name(self, node: ast.Name) -> ast.expr:
        return ast.Constant(json.loads(node.id)) if node.id in ("true", "false", "null") else node


def python_calls(text: str, word: str, tools: Tools) -> list[Call]:
    """Calls with named arguments and literals for values; [] if there is anything else."""
    source = text.strip().removeprefix("```tool_code").removeprefix("```python").strip("`").strip()
    source = f"[{','.join(source.splitlines())}]" if "\n" in source and not source.startswith("[") else source
    try:
        tree = _JSONWords().visit(ast.parse(source, mode="eval").body) if len(source) < 1 << 16 else None
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return []
    nodes = tree.elts if isinstance(tree, ast.List | ast.Tuple) else [tree]
    calls = []
    for node in nodes:
        if not isinstance(node, ast.Call) or node.args or any(key.arg is None for key in node.keywords):
            return []
        try:
            values: dict[str, Any] = {key.arg or "": ast.literal_eval(key.value) for key in node.keywords}
            name = ast.unparse(node.func).removesuffix(".call")  # Llama 3.1's built-in tools
            calls.append(Call(name, json.dumps(values, ensure_ascii=False, allow_nan=False)))
        except (ValueError, TypeError, RecursionError, MemoryError):
            return []
    return calls
