"""Tags in a model's text: which there are, as data, and how they are found in text that arrives in pieces.

A family is the set of tags that one kind of model puts around its thoughts. Matching ignores case and
tolerates white space inside the brackets, because models write `<Think>` and `</ think>`. Sources:
the chat templates and the reasoning parsers of vLLM and SGLang for the models named in `FAMILIES`,
and OpenAI's description of the harmony format for gpt-oss. A family without a model is one that many
models write when a prompt, or what they were trained on, shows it to them.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from itertools import groupby
from typing import Literal

from msgspec import Struct

Role = Literal[
    "open", "close", "start", "final", "end", "empty", "answer", "answer_end", "element", "element_end",
    "call", "calls", "token", "function", "parameter", "call_end", "function_end", "parameter_end",
]  # fmt: skip
"""What a tag does. `open`/`close`: a thought begins or ends; they nest by family (`app.stream.open_thoughts`). `start`: a header or channel
that is no speech begins; it does not nest. `final`: what follows is for the user, whatever came before.
`end`: ends a thought, and means nothing in speech. `empty`: an empty thought in one tag. `answer`: what a tool answered
begins, which is a thought; `answer_end` ends that alone, and means nothing elsewhere. `element`, `element_end`: an element of HTML of the
name of one that is a thought by its attribute. In such a thought they nest; everywhere else they are text.
`call`: the wrapper of a tool call begins. `calls`: the same, and it may hold an array of them. `token`: a
special token behind which calls stand, and which nothing closes. `function`, `parameter`: a part of a call
in XML begins; its name follows, but for a parameter whose tag ends with its bracket. `call_end`, `function_end`, `parameter_end`: one of these ends."""

CALL_OPENERS: frozenset[str | None] = frozenset({"call", "calls", "token", "function", "parameter"})
CALL_ENDERS: frozenset[str | None] = frozenset({"call_end", "function_end", "parameter_end"})


class Family(Struct, frozen=True):
    """The tags of one kind of model, by role. In special tokens `*` stands for up to 80 characters without `<` and `|`, and a space for up to two of white space."""

    opens: tuple[str, ...] = ()
    closes: tuple[str, ...] = ()
    starts: tuple[str, ...] = ()
    finals: tuple[str, ...] = ()
    ends: tuple[str, ...] = ()
    answers: tuple[str, ...] = ()
    answer_ends: tuple[str, ...] = ()
    elements: tuple[str, ...] = ()
    element_ends: tuple[str, ...] = ()

    @property
    def kind(self) -> str:
        """Families of one kind are mixed up by models: the bracket that their tags begin with, or `answer`."""
        if self.answers:
            return "answer"
        first = next(iter(self.opens + self.starts + self.finals + self.ends))
        return "<|" if first.startswith("<|") else first[0]


def _xml(name: str) -> Family:
    return Family(opens=(f"<{name}>",), closes=(f"</{name}>",))


_WORDS = ("think", "thinking", "reasoning")
_TOKENS_OPEN = ("{}", "{}_start", "{}_begin", "begin_of_{}")
_TOKENS_CLOSE = ("/{}", "{}_end", "{}_end", "end_of_{}")
"""Special tokens that are named by what they do, as one model or another has them."""

FAMILIES: dict[str, Family] = {
    "think": _xml("think"),  # Qwen, DeepSeek-R1, GLM, MiniMax and most others
    "thinking": _xml("thinking"),
    "thought": _xml("thought"),  # EXAONE Deep
    "thoughts": _xml("thoughts"),
    "reasoning": _xml("reasoning"),
    "reflection": _xml("reflection"),
    "scratchpad": _xml("scratchpad"),
    "inner_monologue": _xml("inner_monologue"),
    "analysis": _xml("analysis"),
    "thinking_process": _xml("thinking_process"),
    "thought_process": _xml("thought_process"),
    "reasoning_process": _xml("reasoning_process"),
    "internal_reasoning": _xml("internal_reasoning"),
    "chain_of_thought": _xml("chain_of_thought"),
    "cot": _xml("cot"),
    "inner_thoughts": _xml("inner_thoughts"),
    "internal_thoughts": _xml("internal_thoughts"),
    "internal_monologue": _xml("internal_monologue"),
    "scratch_pad": _xml("scratch_pad"),
    "internal": _xml("internal"),
    "tool_response": Family(  # what a tool answered, where the model goes on and makes it up itself
        answers=(
            "<tool_response>",
            "<tool_result>",
            "<tool_results>",
            "<function_results>",
            "<function_result>",
            "<function_response>",
            "<tool_output>",
            "<tool_outputs>",
            "<|tool_response>",  # Gemma 4
            "<start_function_response>",  # FunctionGemma
            "<|tool_response|>",
            "<|tool_result|>",
            "<|START_TOOL_RESULT|>",  # Command A
            "<\uff5ctool\u2581outputs\u2581begin\uff5c>",  # DeepSeek V3
            "<\uff5ctool\u2581output\u2581begin\uff5c>",
            "[TOOL_RESULTS]",  # Mistral
        ),
        answer_ends=(
            "</tool_response>",
            "</tool_result>",
            "</tool_results>",
            "</function_results>",
            "</function_result>",
            "</function_response>",
            "</tool_output>",
            "</tool_outputs>",
            "<tool_response|>",
            "<end_function_response>",
            "<|/tool_response|>",
            "<|/tool_result|>",
            "<|END_TOOL_RESULT|>",
            "<\uff5ctool\u2581outputs\u2581end\uff5c>",
            "<\uff5ctool\u2581output\u2581end\uff5c>",
            "[/TOOL_RESULTS]",
        ),
    ),
    "ant_thinking": Family(  # Claude's, in prompts that were published
        opens=("<antThinking>", "<ant_thinking>"), closes=("</antThinking>", "</ant_thinking>")
    ),
    "seed": _xml("seed:think"),  # ByteDance Seed-OSS
    "minimax": _xml("mm:think"),  # MiniMax M3
    "longcat": _xml("longcat_think"),  # LongCat Flash Thinking
    "hunyuan": _xml("think:opensource"),  # Hunyuan 3 and 4
    "ifm": Family(  # K2 Horizon: three depths of thought
        opens=("<ifm|think>", "<ifm|think_fast>", "<ifm|think_faster>"),
        closes=("</ifm|think>", "</ifm|think_fast>", "</ifm|think_faster>"),
    ),
    "details": Family(  # Open WebUI's form, which models learn from conversations that were kept
        opens=('<details type="reasoning">', '<details type="tool_calls">'),
        elements=("<details>",),
        element_ends=("</details>",),
    ),
    "chatml": Family(  # s1 and others: a role of its own for the thought
        starts=("<|im_start|> think", "<|im_start|> thought", "<|im_start|> reason", "<|im_start|> analysis"),
        finals=("<|im_start|> answer",),
        ends=("<|im_end|>", "<|im_start|> assistant"),
    ),
    "mistral": Family(opens=("[THINK]",), closes=("[/THINK]",)),  # Magistral
    "thinking_brackets": Family(opens=("[THINKING]",), closes=("[/THINKING]",)),
    "think_token": Family(
        opens=tuple(f"<|{form.format(word)}|>" for word in _WORDS for form in _TOKENS_OPEN),
        closes=tuple(f"<|{form.format(word)}|>" for word in _WORDS for form in _TOKENS_CLOSE),
    ),
    "apertus": Family(opens=("<|inner_prefix|>",), closes=("<|inner_suffix|>",)),  # Swiss AI's Apertus
    "medgemma": Family(opens=("<unused94>",), closes=("<unused95>",)),  # MedGemma 1.5
    "openthinker": Family(  # OpenThinker, Sky-T1 and others that were trained on their data
        opens=("<|begin_of_thought|>",),
        closes=("<|end_of_thought|>",),
        finals=("<|begin_of_solution|>",),
        ends=("<|end_of_solution|>",),
    ),
    "gemma": Family(opens=("<|channel>",), closes=("<channel|>",)),  # Gemma 4
    "plamo": Family(opens=("<|plamo:begin_think:plamo|>",), closes=("<|plamo:end_think:plamo|>",)),  # PLaMo 3
    "kimi": Family(opens=("◁think▷",), closes=("◁/think▷",)),  # Kimi-VL-Thinking
    "kimi_k3": Family(
        opens=("<|open|>think<|sep|>",),
        closes=("<|close|>think<|sep|>",),
        finals=("<|open|>response<|sep|>",),
        ends=("<|close|>response<|sep|>", "<|close|>message<|sep|>", "<|end_of_msg|>"),
    ),
    "solar": Family(  # Solar Open; its thoughts begin with `<|think|>`
        starts=("<|begin|>",), finals=("<|content|>",), ends=("<|end|>", "<|flush|>", "<|calls|>")
    ),
    "inkling": Family(
        starts=("<|message_model|>", "<|content_thinking|>"),
        finals=("<|content_text|>",),
        ends=("<|end_message|>", "<|content_model_end_sampling|>"),
    ),
    "muse": Family(ends=("<|eom|>", "<|eot|>")),  # Muse Glimmer
    "cohere": Family(  # Command A Reasoning
        opens=("<|START_THINKING|>",),
        closes=("<|END_THINKING|>",),
        finals=("<|START_RESPONSE|>",),
        ends=("<|END_RESPONSE|>",),
    ),
    "harmony": Family(  # gpt-oss: everything but the channel `final` is kept from the user
        starts=(
            "<|start|>",
            "<|channel|>*<|message|>",
            "<|channel|>*<|constrain|>*<|message|>",
            "<|constrain|>*<|message|>",
        ),
        finals=(
            "<|channel|>final*<|message|>",
            "<|channel|>final*<|constrain|>*<|message|>",
            "<|message|>",
        ),
        ends=("<|end|>", "<|return|>", "<|call|>"),
    ),
}
"""Every family has a name for `think_tags` in the configuration. All are on by default: none of their
tags is anything that a voice could speak."""

ALL_FAMILIES = tuple(FAMILIES)
_KINDS = {name: family.kind for name, family in FAMILIES.items()}


def kind_of_family(name: str) -> str:
    """What kind of tags this family has; "" for none."""
    return _KINDS.get(name, "")


class CallFamily(Struct, frozen=True):
    """The tags that one kind of model puts around its tool calls, by role."""

    call: tuple[str, ...] = ()
    calls: tuple[str, ...] = ()
    token: tuple[str, ...] = ()
    function: tuple[str, ...] = ()
    parameter: tuple[str, ...] = ()
    call_end: tuple[str, ...] = ()
    function_end: tuple[str, ...] = ()
    parameter_end: tuple[str, ...] = ()


def _wrapper(name: str) -> CallFamily:
    return CallFamily(calls=(f"<{name}>",), call_end=(f"</{name}>",))


BARE = "json"
"""The family without a tag: a call in JSON or in Python's form (`app.stream.bare_calls`)."""
FENCED = "tool_code"
"""The family that has a code fence for its tag, too (`app.stream.fences`)."""

CALL_FAMILIES: dict[str, CallFamily] = {
    "qwen": CallFamily(  # hermes JSON and Qwen3.5's XML: one server may produce either
        call=("<tool_call>",),
        function=("<function=", "<function name="),
        parameter=("<parameter=",),
        call_end=("</tool_call>",),
        function_end=("</function>",),
        parameter_end=("</parameter>",),
    ),
    "seed": _wrapper("seed:tool_call"),  # ByteDance Seed-OSS
    "hunyuan": CallFamily(  # Hunyuan 3 and 4
        calls=("<tool_calls:opensource>", "<tool_call:opensource>"),
        call_end=("</tool_calls:opensource>", "</tool_call:opensource>"),
    ),
    "glm": CallFamily(  # in `<tool_call>`
        parameter=("<arg_key>", "<arg_value>"), parameter_end=("</arg_key>", "</arg_value>")
    ),
    "longcat": CallFamily(
        calls=("<longcat_tool_call>",),
        parameter=("<longcat_arg_key>", "<longcat_arg_value>"),
        call_end=("</longcat_tool_call>",),
        parameter_end=("</longcat_arg_key>", "</longcat_arg_value>"),
    ),
    "dots": _wrapper("dots_function_call"),
    "muse": CallFamily(  # Muse Glimmer
        calls=("<atem:function_calls>", "<atem:invoke>"),
        call_end=("</atem:function_calls>", "</atem:invoke>"),
    ),
    "ifm": CallFamily(  # K2 Horizon
        calls=("<ifm|tool_calls>", "<ifm|tool_call>"), call_end=("</ifm|tool_calls>", "</ifm|tool_call>")
    ),
    "minimax": _wrapper("minimax:tool_call"),  # MiniMax M2
    "tool_calls": _wrapper("tool_calls"),
    "function_call": _wrapper("function_call"),
    "function_calls": CallFamily(  # Anthropic's form in a prompt, and MiniMax
        calls=("<function_calls>", "<antml:function_calls>"),
        call_end=("</function_calls>", "</antml:function_calls>"),
    ),
    "functioncall": _wrapper("functioncall"),  # Glaive's data
    "invoke": CallFamily(calls=("<invoke>", "<antml:invoke>"), call_end=("</invoke>", "</antml:invoke>")),
    "toolcall": _wrapper("toolcall"),
    "tools": _wrapper("tools"),  # Qwen2.5, when it mixes up its tags
    "tool_use": _wrapper("tool_use"),
    FENCED: _wrapper("tool_code"),  # Gemma
    "mistral": CallFamily(token=("[TOOL_CALLS]", "[TOOL_CALL]"), call_end=("[/TOOL_CALLS]", "[/TOOL_CALL]")),
    "llama": CallFamily(
        calls=("<|python_start|>",),
        token=("<|python_tag|>",),
        call_end=("<|python_end|>", "<|eom_id|>", "<|eot_id|>"),
    ),
    "gigachat": CallFamily(token=("<|function_call|>", "<|function_calls|>")),
    "lmstudio": CallFamily(
        calls=("[TOOL_REQUEST]",), call_end=("[END_TOOL_REQUEST]",)
    ),  # its default prompt for tools
    "granite": CallFamily(calls=("<|tool_call|>",), call_end=("<|/tool_call|>",)),  # and Phi-4
    "kimi": CallFamily(  # Kimi K2
        calls=("<|tool_calls_section_begin|>", "<|tool_call_section_begin|>", "<|tool_call_begin|>"),
        parameter=("<|tool_call_argument_begin|>",),
        call_end=("<|tool_calls_section_end|>", "<|tool_call_section_end|>", "<|tool_call_end|>"),
    ),
    "kimi_k3": CallFamily(
        calls=("<|open|>tools<|sep|>", "<|open|>call*<|sep|>"),
        call_end=("<|close|>tools<|sep|>", "<|close|>call<|sep|>"),
    ),
    "solar": CallFamily(calls=("<|tool_calls|>", "<|tool_call:begin|>"), call_end=("<|tool_call:end|>",)),
    "plamo": CallFamily(
        calls=("<|plamo:begin_tool_requests:plamo|>", "<|plamo:begin_tool_request:plamo|>"),
        call_end=("<|plamo:end_tool_requests:plamo|>", "<|plamo:end_tool_request:plamo|>"),
    ),
    "inkling": CallFamily(calls=("<|content_invoke_tool_json|>", "<|content_invoke_tool_text|>")),
    "deepseek": CallFamily(  # V3, and the form of V3.2 and later
        calls=(
            "<\uff5ctool\u2581calls\u2581begin\uff5c>",
            "<\uff5ctool\u2581call\u2581begin\uff5c>",
            "<\uff5cDSML\uff5cfunction_calls>",
            "<\uff5cDSML\uff5ctool_calls>",
            "<\uff5cDSML\uff5cinvoke>",
        ),
        parameter=("<\uff5cDSML\uff5cparameter>", "<\uff5ctool\u2581sep\uff5c>"),
        parameter_end=("</\uff5cDSML\uff5cparameter>",),
        call_end=(
            "<\uff5ctool\u2581calls\u2581end\uff5c>",
            "<\uff5ctool\u2581call\u2581end\uff5c>",
            "</\uff5cDSML\uff5cfunction_calls>",
            "</\uff5cDSML\uff5ctool_calls>",
            "</\uff5cDSML\uff5cinvoke>",
        ),
    ),
    "gemma": CallFamily(  # Gemma 4, and FunctionGemma
        calls=("<|tool_call>", "<start_function_call>"), call_end=("<tool_call|>", "<end_function_call>")
    ),
    "lfm": CallFamily(calls=("<|tool_call_start|>",), call_end=("<|tool_call_end|>",)),  # LFM 2
    "apertus": CallFamily(calls=("<|tools_prefix|>",), call_end=("<|tools_suffix|>",)),
    "step": CallFamily(  # Step 3
        calls=(
            "<steptml:toolcall>",
            "<steptml:invoke>",
            "<\uff5ctool_calls_begin\uff5c>",
            "<\uff5ctool_call_begin\uff5c>",
        ),
        call_end=(
            "</steptml:toolcall>",
            "</steptml:invoke>",
            "<\uff5ctool_calls_end\uff5c>",
            "<\uff5ctool_call_end\uff5c>",
        ),
    ),
    "cohere": CallFamily(calls=("<|START_ACTION|>",), call_end=("<|END_ACTION|>",)),  # Command A
    "internlm": CallFamily(calls=("<|action_start|>",), call_end=("<|action_end|>",)),
    BARE: CallFamily(),
}
"""Every family has a name for `call_tags` in the configuration. All are on by default: a voice can speak
none of them. Sources: the chat templates and vLLM's tool parsers for these models."""

ALL_CALL_FAMILIES = tuple(CALL_FAMILIES)

LONGEST = 512
"""Characters of the longest tag, with every tolerated space: more is never held for one."""

INVISIBLE = "\x00-\x08\x0e-\x1b\x7f\xad\u034f\u061c\u180b-\u180e\u200b-\u200f\u202a-\u202e\u2060-\u206f\ufe00-\ufe0f\ufeff"
_TOKENS = ("<|", "<\uff5c", "&", "\uff1c")
_INNER = 2
"""Brackets that may follow the first one in a row of special tokens; in any other tag there is none."""
_SPACE = rf"[\s{INVISIBLE}]{{0,4}}"
_SPACE_INSIDE = rf"[\s{INVISIBLE}]{{0,64}}"
"""Before a tag's last bracket."""
_UNSEEN = rf"[{INVISIBLE}]{{0,2}}"
"""Invisible characters between the letters of a name."""
_DASHES, _BLOCKS = "[_-]", "[\u2581_ ]"
_SLASH = r"[/\uff0f]"
_BAR = "[|\uff5c]"
"""The bar of a special token: DeepSeek's is wide, and engines and other models write either."""
_IN_TOKEN = {"*": r"[^<|\uff5c]{0,80}", " ": r"\s{0,2}"}
_ATTRIBUTES = (r"\s{1,64}", r"[\w:.-]", r"[\w\s:.-]{0,63}", "=", r"[^<>\uff1e&]{0,192}")
_WORD = (r"\s{1,64}", r"\w", r"[\w:.-]{0,63}", _SPACE_INSIDE)
_NEVER_SAID = ("think", "thinking", "reasoning")
"""Names whose tag may have a word alone for its attribute; `<analysis here>` may be a placeholder, and `<think about it>` is prose."""
_OTHERS = r"[^<>\uff1e&]{0,64}"
"""Attributes around the one that makes a thought of an element."""
_WITH_ATTRIBUTE = re.compile(r'<(\w+) (\w+)="(\w+)">')
_TOKEN = re.compile(r"<\|")
_MEANT = 2
"""Characters behind its bracket that make a half tag out of what ends a reply; `a <b` has one."""


def _entity(name: str, decimal: str, hexadecimal: str) -> tuple[str, str]:
    """A pattern for a character as HTML writes it, escaped once or more, and one for every beginning of that."""
    of_decimal = f"0{{0,5}}(?:{decimal[0]}(?:{decimal[1]})?)?"
    of_hexadecimal = f"x(?:0{{0,5}}(?:{hexadecimal[0]}(?:{hexadecimal[1]})?)?)?"
    begun = f"{name[0]}(?:{name[1]})?|\\#(?:{of_hexadecimal}|{of_decimal})?|a(?:m(?:p)?)?"
    escaped = f"(?:{name}|\\#0{{0,5}}{decimal}|\\#x0{{0,5}}{hexadecimal});"
    return f"&(?:amp;){{0,2}}{escaped}", f"&(?:amp;){{0,2}}(?:{begun})?"


_LT, _LT_BEGUN = _entity("lt", "60", "3c")
_GT, _GT_BEGUN = _entity("gt", "62", "3e")
_LESS, _MORE = f"(?:[<\uff1c]|{_LT})", f"(?:[>\uff1e]|{_GT})"
"""The brackets of a tag: as they are, full-width, or as HTML writes them. Models learnt from web pages."""
_BRACKET = re.compile(rf"{_LESS}|[^\w&]", re.IGNORECASE)
_PARTS = {_LESS: _LT_BEGUN, _MORE: _GT_BEGUN}
"""Their beginnings."""

_CLASSES = {"_": _DASHES, "|": _BAR, "\uff5c": _BAR, "\u2581": _BLOCKS}
"""Letters of a name that are written in several ways."""

_Atoms = tuple[str, ...]
"""A tag as patterns in a row. Each is one character, or a class whose every shorter match is a match, or stands
in `_PARTS` with its beginnings: then a tag that is cut off anywhere is matched by the first of them."""


def _bracket(char: str) -> str:
    return {"<": _LESS, ">": _MORE, "|": _BAR}.get(char) or re.escape(char)


def _atoms(tag: str) -> Iterator[_Atoms]:
    """The written forms of a tag. Special tokens (`<|…|>`) have one, with spaces inside their bars; the others tolerate more."""
    if _TOKEN.match(tag):
        less, bar, *others, last_bar, more = (_IN_TOKEN.get(c) or _bracket(c) for c in tag)
        blank = (_IN_TOKEN[" "],) if tag.count("|") == tag.count("<|") + 1 == 2 else ()
        yield (less, bar, *blank, *others, *blank, last_bar, more)
        return
    if found := _WITH_ATTRIBUTE.match(tag):
        yield _with_attribute(*found.groups())
        return
    first, body, last = tag[0], tag[1:-1], tag[-1]
    slash = (_SLASH, _SPACE) if body.startswith("/") else ()
    name = _name(body.lstrip("/"))
    head = (_bracket(first), _SPACE, *slash, *name)
    yield (*head, _SPACE_INSIDE, _bracket(last))
    if first == "<" and last == ">" and not slash:
        yield (*head, *_ATTRIBUTES, _MORE)
        if body in _NEVER_SAID:
            yield (*head, *_WORD, _MORE)


def _with_attribute(name: str, key: str, value: str) -> _Atoms:
    """An element with this attribute, in either quotes or none, and others around it in any order."""
    begin, end = f"(?<=[\\s\"'/]){key[0]}", f"{value[-1]}(?![\\w-])"
    said = (begin, *key[1:], r"\s{0,2}", "=", r"\s{0,2}", "[\"']{0,1}", *value[:-1], end)
    return (_LESS, _SPACE, *_name(name), r"\s{1,4}", _OTHERS, *said, _OTHERS, _MORE)


def _name(name: str) -> _Atoms:
    """The letters of a tag's name, `_` also as `-`. Invisible characters may stand between them."""
    return tuple(atom for c in name for atom in (_CLASSES.get(c) or re.escape(c), _UNSEEN))[:-1]


def _empty(tag: str) -> _Atoms:
    """`<think/>`: the opening tag of an XML-like family, closed in itself."""
    return (_LESS, _SPACE, *_name(tag[1:-1]), _SPACE, _SLASH, _SPACE, _MORE)


def _element(tag: str) -> _Atoms:
    """An opening tag of HTML, whatever its attributes are."""
    *name, last = _name(tag[1:-1])
    return (_LESS, _SPACE, *name, rf"{last}(?![\w:-])", r"[^<>\uff1e&]{0,128}", _MORE)


def beginning(*tags: Sequence[str]) -> str:
    """A pattern for everything that may still become one of these rows of atoms. What rows begin with alike stands in it once."""
    tails: dict[str, list[Sequence[str]]] = {}
    for atom, *tail in filter(None, tags):
        tails.setdefault(atom, []).append(tail)
    written = []
    for atom, rest in tails.items():
        pattern = beginning(*rest)
        whole = f"{atom}(?:{pattern})?" if pattern else atom
        written.append(f"(?:{whole}|{_PARTS[atom]})" if atom in _PARTS else whole)
    return "|".join(written)


def _either(tags: Sequence[Sequence[str]]) -> str:
    """A pattern for one of these rows of atoms, tried in this order. What neighbours begin with alike stands in it once."""
    written = []
    for begin, some in groupby(tags, key=lambda atoms: atoms[:1]):
        rests = [atoms[1:] for atoms in some]
        rest = _either(rests) if begin else ""
        is_one = len({atoms[:1] for atoms in rests}) == 1
        written.append("".join(begin) + (rest if is_one else f"(?:{rest})"))
    return "|".join(written)


def _hints(atoms: Sequence[str]) -> Iterator[str]:
    """Cheap patterns for a tag's beginning up to the first letter of its name, or up to the end of the text.

    Each begins with a character and not with a class: then `re` skips what none of them begins with, in any script.
    """
    first, *others = atoms
    name = next(at for at, atom in enumerate(others) if atom not in (_SPACE, _SLASH))
    tail = ""
    for atom in reversed(others[: name + 1]):
        tail = f"{atom}{tail}" if atom == _SPACE else f"(?:{atom}{tail}|\\Z)"
    if first == _LESS:
        yield f"{_LT_BEGUN}\\Z"
        yield from (f"{written}{tail}" for written in (_LT, "<", "\uff1c"))
    else:
        yield f"{first}{tail}"


def _initial(atoms: _Atoms) -> str:
    """The first letter of a tag's name."""
    letter = next(a for a in atoms[1:] if a not in (_SPACE, _SLASH))
    return "|" if letter == _BAR else letter[-1:].lower()


_Forms = Mapping[str, Sequence[_Atoms]]
"""The tags of one role, by the family that they belong to."""
_OF = "_of_"
"""Between role and family in the name of a group."""


def _compiled(pattern: str) -> re.Pattern[str]:
    """The empty one matches nothing."""
    return re.compile(pattern or r"(?!)", re.IGNORECASE)


class _Tags:
    """The tags of some roles, compiled. This takes most of a second of a gateway's start, so each is compiled once."""

    def __init__(self, tags: Mapping[Role, _Forms]) -> None:
        self.forms = [a for role in tags.values() for family in role.values() for a in family]
        initials = sorted({_initial(a) for a in self.forms})
        self.by_initial = {initial: self._beginning_with(initial, tags) for initial in initials}
        self.part = _compiled(beginning(*self.forms))

    @staticmethod
    def _beginning_with(initial: str, tags: Mapping[Role, _Forms]) -> re.Pattern[str]:
        """One of the tags whose names begin so, its Role as the group."""
        groups = []
        for role in _ORDER:
            written = []
            for family, forms in tags.get(role, {}).items():
                if chosen := _either([a for a in forms if _initial(a) == initial]):
                    written.append(f"(?P<{role}{_OF}{family}>{chosen})")
            if written:
                groups.append(f"(?P<{role}>{'|'.join(written)})")
        return _compiled("|".join(groups))


def family_of(tag: re.Match[str]) -> str:
    """The family that a tag belongs to, which the scanner found."""
    begin = f"{tag.lastgroup}{_OF}"
    groups = tag.re.groupindex.items()
    return next(name for name, at in groups if name.startswith(begin) and tag[at] is not None)[len(begin) :]


class Scanner:
    """Finds the tags of some roles in text that arrives in pieces."""

    def __init__(self, *tags: _Tags) -> None:
        initials = {initial for some in tags for initial in some.by_initial}
        # A candidate is compared with the tags whose names begin as it does, and not with all.
        self._by_initial = {
            i: [some.by_initial[i] for some in tags if i in some.by_initial] for i in initials
        }
        self._all = [each for some in tags for each in some.by_initial.values()]
        self._parts = [some.part for some in tags]
        hints = {hint for some in tags for form in some.forms for hint in _hints(form)}
        self._first = _compiled("|".join(sorted(hints)))

    def scan(self, text: str, before: str = "") -> tuple[re.Match[str] | None, int]:
        """The first tag in `text`, and where the text that is certainly no tag ends.

        The match's `lastgroup` is its Role. A tag between two backticks is a literal, as in prose
        about tags, and is passed over; `before` is the character that preceded `text`. Without a tag
        the second value is where the shortest suffix begins that may still become one, or len(text).
        """
        size, after = len(text), 0
        for found in self._first.finditer(text):
            at = found.start()
            if at < after:
                continue
            match = self._hinted(found)
            if match is None:
                if self.may_become(text, at):
                    return None, at
            elif (text[at - 1] if at else before) != "`":
                return match, at
            elif match.end() == size:
                return None, at  # the next character decides whether it is quoted
            elif text[match.end()] != "`":
                return match, at
            else:
                after = match.end()
        return None, size

    def may_hold(self, text: str) -> bool:
        """Whether a tag, or the beginning of one at the end, may be in `text`; a cheap look."""
        return self._first.search(text) is not None

    def match(self, text: str, at: int = 0) -> re.Match[str] | None:
        """The tag that stands at `at`."""
        hint = self._first.match(text, at)
        return None if hint is None else self._hinted(hint)

    def _hinted(self, hint: re.Match[str]) -> re.Match[str] | None:
        """The tag that begins with this hint. A letter that is none of the initials may still stand for one, as U+017F does."""
        if hint.end() == len(hint.string):
            return None  # a tag goes on behind the first letter of its name
        initial = hint[0][-1:].lower()
        for tags in self._by_initial.get("|" if initial == "\uff5c" else initial, self._all):
            if match := tags.match(hint.string, hint.start()):
                return match
        return None

    def may_become(self, text: str, at: int = 0) -> bool:
        """Whether everything from `at` on may still become one tag."""
        if len(text) - at > LONGEST or text.count("<", at + 1) > (
            _INNER if text.startswith(_TOKENS, at) else 0
        ):
            return False
        if self._first.match(text, at) is None:
            return False
        return any(part.fullmatch(text, at) for part in self._parts)

    def is_half(self, text: str, cut: bool) -> bool:
        """Whether the text at the end of a reply is a tag that was never finished, and no bracket of prose.

        `cut`: the reply did not come to its own end, so that its last word is lost in any case.
        """
        bracket = _BRACKET.match(text)
        said = "" if bracket is None else text[bracket.end() :].strip()
        return len(said) >= (1 if cut else _MEANT) and self.may_become(text)


_ORDER: tuple[Role, ...] = (
    "open", "close", "empty", "final", "start", "end", "answer", "answer_end", "element", "element_end",
    "call", "calls", "token", "function", "parameter", "call_end", "function_end", "parameter_end",
)  # fmt: skip
"""Roles in the order in which they are tried: `final` is the more exact of two channel headers."""


class TagSet:
    """The tags that are looked for in one reply.

    think: the scanner for think tags alone. text: the same with the tags of calls.
    """

    def __init__(self, families: tuple[str, ...], calls: tuple[str, ...]) -> None:
        self.families = families
        self.think = Scanner(_thoughts(families))
        self.text = Scanner(_thoughts(families), _calls(calls))


@lru_cache(maxsize=64)
def _thoughts(families: tuple[str, ...]) -> _Tags:
    chosen = {name: FAMILIES[name] for name in families}
    return _Tags(
        {
            "open": _written({name: f.opens for name, f in chosen.items()}),
            "close": _written({name: f.closes for name, f in chosen.items()}),
            "empty": {
                name: [
                    _empty(tag)
                    for tag in (*f.opens, *f.answers)
                    if tag.endswith(">") and "|" not in tag and " " not in tag
                ]
                for name, f in chosen.items()
            },
            "final": _written({name: f.finals for name, f in chosen.items()}),
            "start": _written({name: f.starts for name, f in chosen.items()}),
            "end": _written({name: f.ends for name, f in chosen.items()}),
            "answer": _written({name: f.answers for name, f in chosen.items()}),
            "answer_end": _written({name: f.answer_ends for name, f in chosen.items()}),
            "element": {name: [_element(tag) for tag in f.elements] for name, f in chosen.items()},
            "element_end": _written({name: f.element_ends for name, f in chosen.items()}),
        }
    )


def _written(tags: Mapping[str, Iterable[str]]) -> dict[str, list[_Atoms]]:
    """Every written form of the tags of each family."""
    return {family: [a for tag in dict.fromkeys(some) for a in _atoms(tag)] for family, some in tags.items()}


@lru_cache(maxsize=64)
def _calls(families: tuple[str, ...]) -> _Tags:
    chosen = {name: CALL_FAMILIES[name] for name in families}
    return _Tags(
        {
            "call": _written({name: f.call for name, f in chosen.items()}),
            "calls": _written({name: f.calls for name, f in chosen.items()}),
            "token": _written({name: f.token for name, f in chosen.items()}),
            "function": _written({name: f.function for name, f in chosen.items()}),
            "parameter": _written({name: f.parameter for name, f in chosen.items()}),
            "call_end": _written({name: f.call_end for name, f in chosen.items()}),
            "function_end": _written({name: f.function_end for name, f in chosen.items()}),
            "parameter_end": _written({name: f.parameter_end for name, f in chosen.items()}),
        }
    )


def call_scanner() -> Scanner:
    """Finds the tags of calls alone, of every family."""
    return Scanner(_calls(ALL_CALL_FAMILIES))


@lru_cache(maxsize=64)
def tag_set(families: tuple[str, ...], calls: tuple[str, ...]) -> TagSet:
    """The scanners of these families, compiled once. Raises KeyError for an unknown name."""
    return TagSet(families, calls)
