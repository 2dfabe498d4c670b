"""A generator of engine replies: thoughts, calls and prose in every form that engines have sent them.

A reply is a list of pieces in the order in which the model wrote them. Each piece carries the words
that must not be heard (`secrets`) and those that must be (`words`), so that a check needs no second
implementation of the rules.
"""

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Any, Literal, get_args

from gates.contracts.dialect import Dialect
from tests.fuzz.draw import Draw

Field = Literal["content", "reasoning", "call"]
DIALECTS: tuple[Dialect, ...] = get_args(Dialect)


@dataclass(frozen=True)
class Secret:
    """A word that must not be heard.

    tools: only where tools are declared (otherwise it is an example, in a fence).
    whole: only where the whole reply is known before anything goes out (an orphan closing tag).
    reasoning: only where the reasoning field cannot be the answer.
    calls: not in a call's arguments either.
    tag: the word is a tag, which another piece may rightly mention.
    """

    word: str
    tools: bool = False
    whole: bool = False
    reasoning: bool = False
    calls: bool = True
    tag: bool = False


@dataclass(frozen=True)
class Piece:
    """Text in one field of the reply, or one native call (`name`; `text` is its arguments)."""

    field: Field
    text: str
    name: str = ""
    secrets: tuple[Secret, ...] = ()
    words: tuple[str, ...] = ()
    plain: bool = True  # well-formed: it takes nothing from the pieces around it
    opens: bool = False  # it leaves a call open, which may take what follows as its arguments
    mentions: bool = False  # it may speak of tags
    joined: bool = False  # only together with the next piece does it say what it is to say


@dataclass(frozen=True)
class Reply:
    """A whole reply. `finish` None: the stream breaks off."""

    pieces: tuple[Piece, ...]
    finish: str | None = "stop"
    usage: bool = True
    done: bool = True

    @property
    def is_plain(self) -> bool:
        """Whether every word of the prose must be heard."""
        return all(piece.plain for piece in self.pieces) and self.finish is not None

    def secrets(self) -> Iterable[Secret]:
        """The words that must not be heard, up to where a call was left open."""
        mentions = any(piece.mentions for piece in self.pieces)
        for piece in self.pieces:
            yield from (secret for secret in piece.secrets if not (secret.tag and mentions))
            if piece.opens:
                return


FAMILIES: tuple[tuple[str, str], ...] = (
    ("<think>", "</think>"),
    ("<thinking>", "</thinking>"),
    ("<thought>", "</thought>"),
    ("<reasoning>", "</reasoning>"),
    ("<Think>", "</Think>"),
    ("<THINK>", "</THINK>"),
    ("<think >", "</think >"),
    ("<think\n>", "</think\n>"),
    ("<think>", "</ think>"),
    ("[THINK]", "[/THINK]"),
    ("&lt;think&gt;", "&lt;/think&gt;"),
    ("&#60;Think&#62;", "&#x3c;/THINK&#x3E;"),
    ("◁think▷", "◁/think▷"),
    ("<seed:think>", "</seed:think>"),
    ("<mm:think>", "</mm:think>"),
    ("<analysis>", "</analysis>"),
    ("<thinking_process>", "</thinking_process>"),
    ("<ifm|think_fast>", "</ifm|think_fast>"),
    ("[THINKING]", "[/THINKING]"),
    ("<|think|>", "<|/think|>"),
    ("<|begin_of_thought|>", "<|end_of_thought|>"),
    ("<|channel>thought\n", "<channel|>"),
    ("<|plamo:begin_think:plamo|>", "<|plamo:end_think:plamo|>"),
    ("<|open|>think<|sep|>", "<|close|>think<|sep|>"),
    ("<longcat_think>", "</longcat_think>"),
    ("<unused94>thought\n", "<unused95>"),
    ("<|inner_prefix|>", "<|inner_suffix|>"),
    ("<｜begin_of_thinking｜>", "<|end_of_thinking|>"),
    ("<internal>", "</internal>"),
    ("<|think_start|>", "<|think_end|>"),
    ("<|channel|>analysis<|message|>", "<|end|><|start|>assistant<|channel|>final<|message|>"),
)
"""Opening and closing tags of thoughts as models write them; a closing one alone makes a thought of what stands before it.
Sources: issue 13, part 4, and the models' templates."""
WHOLE = (
    *FAMILIES,
    ('<details type="reasoning" done="true">\n', "</details>"),
    ("<details open type='reasoning'>", "</ details >"),
    ("<|im_start|>think\n", "<|im_end|>"),
    ("<|im_start|>thinking", "<|im_start|>answer"),
    ("<think" + " " * 30 + ">", "</think" + "\n" * 9 + ">"),
)
"""The same with those whose end alone says nothing."""

PROSE = (
    "Hi. ", "Sure, ", "a < b", "x<y ", "one\ntwo\n", "  \n", "\n\n", " ", "[1] and [T", "né 🙂 ನ ", "◁ or ▷ ",
    "\u2028line\u0085", "</", "<", "{}", "5 > 3 ", "\t", "e.g. [THI", "</thi", "it's \"so\"", "\\u003cthink\\u003e",
)  # fmt: skip
NAMES = ("web_search", "now", "search_memory", "set_light")
VALUES = (
    "Oslo",
    'a "b" {c}',
    "x\ny",
    "</tool_call>",
    "1 < 2",
    "",
    "é🙂",
    "<think>hm</think>",
    "```",
    "}",
    "]]",
)


class Words:
    """Fresh words for one reply: no word is the beginning of another, and none holds a tag."""

    def __init__(self) -> None:
        self._count = 0

    def secret(self) -> str:
        """A word that nobody may hear."""
        self._count += 1
        return f"SECRET{self._count}Z"

    def heard(self) -> str:
        """A word that must be heard."""
        self._count += 1
        return f"WORD{self._count}Z"


Maker = Callable[[Draw, Words], tuple[Piece, ...]]


def prose(draw: Draw, words: Words) -> tuple[Piece, ...]:
    word = words.heard()
    return (Piece("content", draw.pick(PROSE) + word + draw.pick(PROSE), words=(word,)),)


def closed_thought(draw: Draw, words: Words) -> tuple[Piece, ...]:
    opener, closer = draw.pick(WHOLE)
    word = words.secret()
    body = draw.pick(PROSE) + word + draw.pick(PROSE)
    plain = (
        "final" not in closer and "answer" not in closer
    )  # gpt-oss: what stands before the header of the answer is none
    return (Piece("content", opener + body + closer, secrets=(Secret(word),), plain=plain),)


def nested_thought(draw: Draw, words: Words) -> tuple[Piece, ...]:
    opener, closer = FAMILIES[draw.below(4)]
    one, two, three = words.secret(), words.secret(), words.secret()
    text = f"{opener}{one}{opener}{two}{closer}{three}{closer}"
    return (Piece("content", text, secrets=(Secret(one), Secret(two), Secret(three))),)


OTHERS = (
    ("[THINK]", "[/THINK]"),
    ("<tool_response>", "</tool_response>"),
    ("<|think|>", "<|/think|>"),
    ("<internal>", "</internal>"),
)
"""Families none of which is one of the first four."""


def knotted_thought(draw: Draw, words: Words) -> tuple[Piece, ...]:
    """A closing tag of the outer thought stands in the inner one, or one that nothing opened."""
    opener, closer = FAMILIES[draw.below(4)]
    inner, end = draw.pick(OTHERS)
    foreign = draw.pick((closer, *(tag for _, tag in OTHERS if tag != end)))
    one, two, three, four = (words.secret() for _ in range(4))
    text = f"{opener}{one}{inner}{two}{foreign}{three}{end}{four}{closer}"
    return (Piece("content", text, secrets=tuple(Secret(word) for word in (one, two, three, four))),)


def open_thought(draw: Draw, words: Words) -> tuple[Piece, ...]:
    opener, _ = draw.pick(WHOLE)
    word = words.secret()
    return (Piece("content", opener + word, secrets=(Secret(word),), plain=False),)


def orphan_closer(draw: Draw, words: Words) -> tuple[Piece, ...]:
    _, closer = draw.pick(FAMILIES[:-1])
    word = words.secret()
    return (
        Piece("content", word + draw.pick(PROSE) + closer, secrets=(Secret(word, whole=True),), plain=False),
    )


def call_in_lost_thought(draw: Draw, words: Words) -> tuple[Piece, ...]:
    """A call in a thought whose opening tag was lost: it is no call."""
    _, closer = FAMILIES[draw.below(4)]
    word = words.secret()
    call = f'<tool_call>\n{{"name": "web_search", "arguments": {{"query": "{word}"}}}}\n</tool_call>'
    return (Piece("content", f"{call}\n{closer}", secrets=(Secret(word, whole=True),), plain=False),)


def reasoning(draw: Draw, words: Words) -> tuple[Piece, ...]:
    word = words.secret()
    text = draw.pick(PROSE) + word + draw.pick(PROSE)
    return (Piece("reasoning", text, secrets=(Secret(word, reasoning=True),)),)


def blank_reasoning(draw: Draw, words: Words) -> tuple[Piece, ...]:
    return (Piece("reasoning", draw.pick(("\n", "", " ", "\n\n", "\t")), plain=False),)


def reasoning_with_tags(draw: Draw, words: Words) -> tuple[Piece, ...]:
    opener, closer = FAMILIES[draw.below(4)]
    word = words.secret()
    text = draw.pick((f"{opener}{word}{closer}", f"{word}{closer}", f"{opener}{word}"))
    return (Piece("reasoning", text, secrets=(Secret(word, reasoning=True),), plain=False),)


def closer_over_fields(draw: Draw, words: Words) -> tuple[Piece, ...]:
    """An engine's parser took half of the tag for reasoning."""
    tag = draw.pick(("</think>", "</thinking>", "</reasoning>"))
    cut = 2 + draw.below(len(tag) - 3)
    secret, rest = words.secret(), tag[cut:]
    hidden = (Secret(secret, reasoning=True),)
    begun = Piece("reasoning", secret + tag[:cut], secrets=hidden, plain=False, joined=True)
    return begun, Piece("content", rest + "Hi.", secrets=(Secret(rest + "Hi"),), plain=False)


def opener_over_fields(draw: Draw, words: Words) -> tuple[Piece, ...]:
    """The other way round: half of the opening tag in the text."""
    tag = draw.pick(("<think>", "<thinking>", "<reasoning>"))
    cut = 2 + draw.below(len(tag) - 3)
    secret = words.secret()
    said = words.heard() + tag[:cut]
    head = Piece("content", said, secrets=(Secret(said),), plain=False, joined=True)
    hidden = (Secret(secret, reasoning=True),)
    body = Piece("reasoning", tag[cut:] + secret, secrets=hidden, plain=False, joined=True)
    return head, body, Piece("content", "So. ", plain=False)


def _arguments(draw: Draw) -> dict[str, Any]:
    keys = ("query", "limit", "x")[: draw.below(3)]
    values = [draw.pick((*VALUES, 5, True, None, [1], {"a": "b"}, -0.5, 10**30)) for _ in keys]
    return dict(zip(keys, values, strict=True))


def hermes_call(draw: Draw, words: Words) -> tuple[Piece, ...]:
    body = {"name": draw.pick(NAMES), "arguments": _arguments(draw)}
    if draw.chance(4):
        body = {"arguments": body["arguments"], "name": body["name"]}
    text = json.dumps(body, ensure_ascii=draw.chance(2))
    space = draw.pick(("\n", "", " "))
    return (Piece("content", f"<tool_call>{space}{text}{space}</tool_call>"),)


def xml_call(draw: Draw, words: Words) -> tuple[Piece, ...]:
    parameters = "".join(
        f"<parameter={key}>\n{value}\n</parameter>\n"
        for key, value in (("query", "Oslo"), ("limit", "50306"), ("on", "true"))[: draw.below(4)]
    )
    call = f"<function={draw.pick(NAMES)}>\n{parameters}</function>"
    return (Piece("content", f"<tool_call>\n{call}\n</tool_call>" if draw.below(3) else call),)


def native_call(draw: Draw, words: Words) -> tuple[Piece, ...]:
    text = draw.pick((json.dumps(_arguments(draw)), "{}", "", "null"))
    return (Piece("call", text, name=draw.pick(NAMES)),)


def native_call_and_tags(draw: Draw, words: Words) -> tuple[Piece, ...]:
    """The engine made the call, and left a closing tag of it in the text."""
    tag = draw.pick(("</tool_call>", "</function>\n</tool_call>", "</function>", "</parameter>"))
    call = Piece("call", "{}", name="now", plain=False, joined=True)
    return call, Piece("content", tag, secrets=(Secret(tag, calls=False, tag=True),), plain=False)


def broken_call(draw: Draw, words: Words) -> tuple[Piece, ...]:
    """A block that can only be meant as a call, and is none."""
    word = words.secret()
    body = draw.pick(
        (
            '{"arguments": {"query": "%s"}}',  # no name
            '{"name": "", "arguments": {"query": "%s"}}',
            '{"name": 5, "arguments": {"query": "%s"}}',
            '[{"name": "web_search", "arguments": {"query": "%s"}}]',
            "{'name': 'web_search', 'arguments': {'query': '%s'}}",
            '{name: "web_search", arguments: {query: "%s"}}',
            '```json\n{"name": "web_search", "arguments": {"query": "%s"}}\n```',
            '{"name": "web_search", "arguments": "%s"}',
            '{"name": "web_search", "arguments": ["%s"]}',
            '{"arguments": {"query": "%s"',
        )
    )
    text = f"<tool_call>\n{body.replace('%s', word)}\n</tool_call>"
    return (Piece("content", text, secrets=(Secret(word),), plain=False),)


def broken_arguments(draw: Draw, words: Words) -> tuple[Piece, ...]:
    """A call that breaks in its arguments: it may go out as an error, but nothing of it is spoken."""
    word = words.secret()
    body = draw.pick(
        (
            '{"name": "web_search", "arguments": {"query": "%s"',
            '{"name": "web_search", "arguments": {"query": "%s<think>x</think>"}}',
            '{"name": "web_search", "arguments": {"query": "a"}, <think>%s</think>}',
            '{"name": "web_search", "arguments": {"query": "a<think>b", %s: 1}}',
            '{"name": "web_search", "arguments": {"query": "%s\n"}}',
            '{"name": "web_search", "arguments": {"query": "\\x%s"}}',
            "<function=web_search>\n<parameter=query>\n<think>%s</think>\n</parameter>\n</function>",
            "<function=web_search>\n<parameter=query>\n%s",
            "<function=web_search\n<parameter=query>\n%s\n</parameter>\n</function>",
            "<function=web search>\n<parameter=query>\n%s\n</parameter>\n</function>",
            "<function=>\n<parameter=query>\n%s\n</parameter>\n</function>",
        )
    )
    text = f"<tool_call>\n{body.replace('%s', word)}\n</tool_call>"
    secret = Secret(word, calls=False)
    return (Piece("content", text, secrets=(secret,), plain=False, opens=True),)


def unclosed_call(draw: Draw, words: Words) -> tuple[Piece, ...]:
    word = words.secret()
    body = draw.pick(
        (
            '{"name": "web_search", "arguments": {"query": "%s',
            '{"name": "unknown", "arguments": {"query": "%s',
            '{"arguments": {"query": "%s"}',
            "<function=web_search>\n<parameter=query>\n%s",
            "<function=web_search>\n<param%s",
            "[%s",
            "{'name': '%s",
        )
    )
    secret = Secret(word, calls=False)
    text = "<tool_call>" + draw.pick(("\n", "")) + body.replace("%s", word)
    return (Piece("content", text, secrets=(secret,), plain=False, opens=True),)


WRAPPED = (
    "<tool_call>%s</tool_call>", "<tool_calls>[%s]</tool_calls>", "<tool_calls>\n%s\n</tool_calls>", "<function_call>%s</function_call>",
    "<function_calls>[%s, %s]</function_calls>", "[TOOL_CALLS][%s]", "[TOOL_CALLS] [%s, %s]", "<|python_tag|>%s", "<|python_tag|>%s<|eom_id|>",
    "<|tool_call|>[%s]<|/tool_call|>", "<longcat_tool_call>%s</longcat_tool_call>", "<|function_call|>%s", "[TOOL_REQUEST]%s[END_TOOL_REQUEST]", "<tool_calls:opensource>%s</tool_calls:opensource>", "&lt;tool_call&gt;%s&lt;/tool_call&gt;", "&#60;tool_calls&#62;[%s]&#60;/tool_calls&#62;",
    "\n%s\n", "\n[%s]\n", "\n  [\n%s,\n%s\n]\n", '\n{"type": "function", "function": %s}\n', '\n{"tool_calls": [%s]}\n', "\nso: %s\n", "so: [%s, %s]  \n",
)  # fmt: skip
"""What stands around calls in JSON, in the order of `app.stream.tags.CALL_FAMILIES`; at last nothing does."""


def call_of_any_form(draw: Draw, words: Words) -> tuple[Piece, ...]:
    """A whole call in JSON, of a tool that is declared, or of none: it is not heard, and perhaps made."""
    form = draw.pick(WRAPPED)
    calls = []
    for _ in range(form.count("%s")):
        word = words.secret()
        keys = draw.pick((("name", "arguments"), ("name", "parameters")))
        call = {keys[0]: draw.pick((*NAMES, "get_date")), keys[1]: {**_arguments(draw), "word": word}}
        calls.append((word, json.dumps(call, indent=draw.pick((None, None, 1)))))
    text = form % tuple(call for _, call in calls)
    secrets = tuple(Secret(word, calls=False) for word, _ in calls)
    return (Piece("content", text, secrets=secrets, plain=False),)


def named_call(draw: Draw, words: Words) -> tuple[Piece, ...]:
    """Mistral's newer form."""
    word = words.secret()
    mark = draw.pick(("[ARGS]", "", "[CALL_ID]a1b2c3d4e[ARGS]", " [ARGS] "))
    text = f'[TOOL_CALLS]{draw.pick((*NAMES, "get_date"))}{mark}{{"word": "{word}"}}'
    return (Piece("content", text, secrets=(Secret(word, calls=False),), plain=False),)


def python_call(draw: Draw, words: Words) -> tuple[Piece, ...]:
    """A list of calls in Python's form."""
    word = words.secret()
    text = draw.pick(
        ("[now(x='%s')]", '[now(), set_light(on=True, room="%s")]', "[\n now(\n  x = '%s',\n ),\n]")
    )
    secret = Secret(word, calls=False)
    return (Piece("content", f"\n{text % word}\n", secrets=(secret,), plain=False),)


def line_of_a_call(draw: Draw, words: Words) -> tuple[Piece, ...]:
    """A call by a tool's name alone, in a line of its own: without tools it is text."""
    word = words.secret()
    text = draw.pick(
        (
            "web_search(query='%s')", "now(\n  x='%s',\n)", 'set_light({"room": "%s"})', 'web_search {"query": "%s"}',
            'now: {"x": "%s"}', "now('%s')", "web_search {'query': '%s'}", "now(x=1); web_search(query=%s)",
            'no{"name": "now", "arguments": {"x": "%s"}}', 'now: {"name": "now", "arguments": {"x": "%s"}}', "now(\nweb_search(query='%s')",
            'Action: web_search\nAction Input: {"query": "%s"}', "Action: now\nAction Input: %s",
        )
    )  # fmt: skip
    secret = Secret(word, tools=True, calls=False)
    return (Piece("content", f"\n{text % word}\n", secrets=(secret,), plain=False),)


def named_prose(draw: Draw, words: Words) -> tuple[Piece, ...]:
    """Lines that begin as such calls do, and are none."""
    word = words.heard()
    text = draw.pick(
        ("now %s", "now(%s) is", "web_search() is %s", "web_se%s", "now: %s", "now {%s} so", "no\nnow\n%s")
    )
    return (Piece("content", f"\n{text % word}. ", words=(word,)),)


def broken_bare_call(draw: Draw, words: Words) -> tuple[Piece, ...]:
    """JSON without a tag that can only be meant as a call, and is none."""
    word = words.secret()
    body = draw.pick(
        (
            "{'name': 'now', 'arguments': {'x': '%s'}}",
            "{name: now, arguments: {x: '%s'}}",
            "so: {name: 'now', arguments: {x: '%s'}}\n",  # inside a line: only a tool of the request, and where the line ends
            '{"name": "now", "arguments": {"x": %s}}',
            '{"name": "now", "arguments": {"x": "%s"',
            '[{"name": "now", "arguments": {}}, "%s"]',
            '{"name": "now", "arguments": {"x": "%s\n"}}',
            "<|python_tag|>now(x='%s')<|eom_id|>",
            "```tool_code\nprint(now(x='%s'))\n```\n",
        )
    )
    secret = Secret(word, tools=body.startswith("so"), calls=False)
    return (Piece("content", "\n" + body.replace("%s", word), secrets=(secret,), plain=False, opens=True),)


def orphan_parameter(draw: Draw, words: Words) -> tuple[Piece, ...]:
    """The rest of a call in XML whose beginning an engine's parser took."""
    word = words.secret()
    space = draw.pick(("\n", ""))
    end = draw.pick(("</parameter>", "</parameter>\n</function>", "</parameter></function></tool_call>"))
    text = f"<parameter=query>{space}{word}{space}{end}"
    return (Piece("content", text, secrets=(Secret(word),), plain=False),)


def call_in_reasoning(draw: Draw, words: Words) -> tuple[Piece, ...]:
    """With thinking off this may be the answer, and so speech."""
    (piece,) = call_of_any_form(draw, words)
    return (replace(piece, field="reasoning", plain=False),)


def other_json(draw: Draw, words: Words) -> tuple[Piece, ...]:
    """JSON that is no call, in a line of its own, is speech."""
    word = words.heard()
    text = draw.pick(
        (
            '{"answer": "%s"}',
            '{"name": "%s", "age": 7}',
            '[{"name": "%s"}]',
            '["%s", 1]',
            "[%s]",
            '{\n "name": "%s",\n "parameters": [1]\n}',
            "{%s}",
        )
    )
    return (Piece("content", "\n" + text.replace("%s", word) + "\n", words=(word,)),)


def fenced_call(draw: Draw, words: Words) -> tuple[Piece, ...]:
    """An example of a call, or a call that a model put in a fence: it is not made and not heard."""
    word = words.secret()
    text = f'\n```json\n<tool_call>\n{{"name": "web_search", "arguments": {{"query": "{word}"}}}}\n</tool_call>\n```\n'
    return (Piece("content", text, secrets=(Secret(word, tools=True),), plain=False, mentions=True),)


def call_in_thought(draw: Draw, words: Words) -> tuple[Piece, ...]:
    """A thought that never closes and ends in a call: the call survives (vLLM #39056), the thought is hidden."""
    word = words.secret()
    call = draw.pick(
        (
            '<tool_call>\n{"name": "now", "arguments": {}}\n</tool_call>',
            "<function=now>\n</function>",
            "<tool_call>{",
        )
    )
    if draw.below(2):
        secret = Secret(word, reasoning=True)
        return (Piece("reasoning", word + call, secrets=(secret,), plain=False, opens=True),)
    text = FAMILIES[draw.below(4)][0] + word + call
    return (Piece("content", text, secrets=(Secret(word),), plain=False, opens=True),)


IN_A_THOUGHT = (
    '<tool_call>{"name": "now", "arguments": {"x": "%s"}}</tool_call>', '<tool_call>\n{"arguments": {"x": ["%s", 1]}, "name": "f"}\n</tool_call>',
    "<tool_call>{'name': 'now', 'arguments': {'x': '%s'}}</tool_call>", '<tool_call>{"name": "now", "arguments": "{\\"x\\": \\"%s\\"}"}</tool_call>',
    "<tool_call>\n<function=now>\n<parameter=x>\n%s\n</parameter>\n</function>\n</tool_call>", "<function=f><parameter=x>%s</parameter></function>",
    '<tool_calls>[{"name": "now", "arguments": {"x": "%s"}}]</tool_calls>', '[TOOL_CALLS]now[ARGS]{"x": "%s"}', '{"name": "now", "arguments": {"x": "%s"}}',
    "<tool_call>now\n<arg_key>x</arg_key>\n<arg_value>%s</arg_value>\n</tool_call>", '<invoke name="now"><parameter name="x">%s</parameter></invoke>',
    '<｜DSML｜invoke name="now"><｜DSML｜parameter name="x" string="true">%s</｜DSML｜parameter></｜DSML｜invoke>', '<|tool_call>call:now{x:<|"|>%s<|"|>}<tool_call|>',
    "<tool_call>{&quot;name&quot;: &quot;now&quot;, &quot;arguments&quot;: {&quot;x&quot;: &quot;%s&quot;}}</tool_call>", "now(y=1, x='%s')",
)  # fmt: skip
"""Calls with `%s` in an argument."""


def closer_in_an_argument(draw: Draw, words: Words) -> tuple[Piece, ...]:
    """A call in a thought whose argument holds the thought's own tags; the engine may have ended the thought there."""
    opener, closer = draw.pick(FAMILIES[:-1])
    one, two, three = words.secret(), words.secret(), words.secret()
    said = draw.pick((closer, f"{opener}x{closer}", f"{two} {closer}", f"{closer}{two}", f'\\"{closer}\\"'))
    begun, _, rest = draw.pick(IN_A_THOUGHT).partition("%s")
    rest = f"{rest}{draw.pick(('', ' ', chr(10)))}{three}{closer}"
    secrets = tuple(Secret(word) for word in (one, two, three))
    if draw.below(4) or closer not in ("</think>", "</thinking>", "</thought>", "</reasoning>"):
        return (Piece("content", f"{opener}{one}{begun}{said}{rest}", secrets=secrets),)
    hidden = tuple(Secret(word, reasoning=True) for word in (one, two, three))
    head = Piece("reasoning", one + begun, secrets=hidden, plain=False, joined=True)
    return head, Piece("content", rest, secrets=secrets, plain=False)


def broken_off_thought(draw: Draw, words: Words) -> tuple[Piece, ...]:
    """A thought that ends in the middle of a call, or mentions one: what follows is the answer."""
    opener, closer = draw.pick(FAMILIES[:-1])
    secret, heard = words.secret(), words.heard()
    begun = draw.pick(
        (*(form.partition("%s")[0] for form in IN_A_THOUGHT), "so <tool_call> or ", "<function=now>")
    )
    text = f"{opener}{begun}{secret}{closer}{draw.pick(('', chr(10) * 2))}{heard} so."
    return (Piece("content", text, secrets=(Secret(secret),), plain=False),)


def fenced_code(draw: Draw, words: Words) -> tuple[Piece, ...]:
    word = words.heard()
    mark = draw.pick(("```", "~~~", "````"))
    return (Piece("content", f"\n{mark}python\nif a < b: {word}\n{mark}\n", words=(word,)),)


def mentioned_tag(draw: Draw, words: Words) -> tuple[Piece, ...]:
    """Prose about tags, in backticks."""
    word = words.heard()
    tag = draw.pick(("<think>", "</think>", "<tool_call>", "</tool_call>", "<function=", "[THINK]"))
    return (Piece("content", f"The `{tag}` {word} tag. ", words=(word,), mentions=True),)


def bare_tag(draw: Draw, words: Words) -> tuple[Piece, ...]:
    """Prose about a tag, without backticks."""
    word = words.heard()
    said = f"<tool_call> tag {word}"
    return (Piece("content", f"Use the {said}. ", words=(said,), mentions=True),)


def call_in_thought_behind_a_broken_one(draw: Draw, words: Words) -> tuple[Piece, ...]:
    """A call that is none, a thought while it is not over, and a call in that: it is thought."""
    word = words.secret()
    opener, closer = draw.pick(FAMILIES)
    broken = draw.pick(
        (
            '[TOOL_CALLS]now[ARGS]{}\n{"a": 1}\n',
            '<tool_call>{"name": 5, x\n',
            "<function=now>{\n",
            "Action: now\nAction Input: {\n",
            "<now>\n",
        )
    )
    call = draw.pick(
        (
            '<tool_call>{"name": "now", "arguments": {"x": "%s"}}</tool_call>',
            "<tool_call>\n<function=now>\n<parameter=x>\n%s",
            '[TOOL_CALLS]now[ARGS]{"x": "%s"}',
        )
    )
    text = f"{broken}{opener}hm {call.replace('%s', word)}{closer}"
    return (Piece("content", text, secrets=(Secret(word),), plain=False, opens=True),)


def interrupted_call(draw: Draw, words: Words) -> tuple[Piece, ...]:
    """The engine makes a call of its own, or reasons, in the middle of one in the text; the rest of that stands behind it."""
    word = words.secret()
    begun, rest = draw.pick(
        (
            ('<tool_call>{"name": "now", "arguments": {', '"x": "%s"}}</tool_call>'),
            ('<tool_call>{"name": "now", "arg', 'uments": {"x": "%s"}}\n</tool_call>'),
            ('<tool_calls>[{"name": "now", "x": "', '%s"}]</tool_calls>'),
            ("<tool_call>\n<function=now>\n<parameter=x>\n", "%s\n</parameter>\n</function>\n</tool_call>"),
            ('<tool_call>{"name": 5, x', "%s}</tool_call>"),
        )
    )
    between = draw.pick((Piece("call", "{}", name="now"), Piece("reasoning", "hm")))
    secret = Secret(word, calls=False)
    return (
        Piece("content", begun, plain=False, joined=True),
        replace(between, plain=False, joined=True),
        Piece("content", rest.replace("%s", word), secrets=(secret,), plain=False),
    )


def interrupted_tag(draw: Draw, words: Words) -> tuple[Piece, ...]:
    """The engine makes a call of its own in the middle of a think tag."""
    opener, closer = FAMILIES[draw.below(4)]
    word, cut = words.secret(), 2 + draw.below(len(opener) - 2)  # a bracket alone is speech
    return (
        Piece("content", opener[:cut], plain=False, joined=True),
        Piece("call", "{}", name="now", plain=False, joined=True),
        Piece("content", opener[cut:] + word + closer, secrets=(Secret(word),), plain=False),
    )


CALL_BETWEEN = Piece("call", "{}", name="now", plain=False, joined=True)
THOUGHT_BETWEEN = Piece("reasoning", "hm", plain=False, joined=True)


def tag_over_calls(draw: Draw, words: Words) -> tuple[Piece, ...]:
    """A think tag of any family in two or three parts, and calls of the engine's own between them."""
    opener, closer = draw.pick(FAMILIES[:-1])
    least = 1 + (opener.index(";") + 1 if opener[0] == "&" else 1)  # a bracket alone is speech
    word, cut = words.secret(), least + draw.below(len(opener) - least - 1)
    parts = [opener[:cut], opener[cut:]]
    if len(parts[1]) > 1 and draw.chance(3):
        parts = [parts[0], parts[1][:1], parts[1][1:]]
    begun = [
        piece
        for part in parts[:-1]
        for piece in (Piece("content", part, plain=False, joined=True), CALL_BETWEEN)
    ]
    return *begun, Piece("content", parts[-1] + word + closer, secrets=(Secret(word),), plain=False)


def thought_over_calls(draw: Draw, words: Words) -> tuple[Piece, ...]:
    """The engine makes calls of its own in a thought in the text, perhaps in its closing tag."""
    opener, closer = draw.pick(FAMILIES)
    one, two = words.secret(), words.secret()
    half = draw.pick(("", "", closer[:1], closer[:3]))
    call = replace(CALL_BETWEEN, text=draw.pick(("{}", "", '{"x": 1}')))
    return (
        Piece("content", f"{opener}{one}{half}", secrets=(Secret(one),), plain=False, joined=True),
        *(call,) * (1 + draw.below(2)),
        Piece("content", two + closer, secrets=(Secret(two),), plain=False),
    )


def thought_over_fields(draw: Draw, words: Words) -> tuple[Piece, ...]:
    """The engine's reasoning field goes on in the middle of a thought in the text."""
    opener, closer = draw.pick(FAMILIES)
    one, two = words.secret(), words.secret()
    begun = Piece("content", opener + one, secrets=(Secret(one),), plain=False, joined=True)
    rest = Piece("content", two + closer, secrets=(Secret(two, whole=True),), plain=False)
    return begun, THOUGHT_BETWEEN, rest


def thought_over_a_call(draw: Draw, words: Words) -> tuple[Piece, ...]:
    """A call of the engine's own anywhere in a thought in the text: in its tags, or those of thoughts in it."""
    maker = draw.pick((closed_thought, nested_thought, knotted_thought, odd_thought))
    (thought,) = maker(draw, words)
    text = thought.text
    least = 1 + (text.index(";") + 1 if text[0] == "&" else 1)  # a bracket alone is speech
    cut = least + draw.below(len(text) - least)
    return (
        Piece("content", text[:cut], plain=False, joined=True),
        CALL_BETWEEN,
        replace(thought, text=text[cut:], plain=False, words=()),
    )


def tag_over_reasoning(draw: Draw, words: Words) -> tuple[Piece, ...]:
    """Half a tag, reasoning in the field for it, and the other half: of a thought, or of a call."""
    word = words.secret()
    tag, rest = draw.pick(
        (
            *((opener, f"%s{closer}") for opener, closer in (*FAMILIES[:4], *OTHERS)),
            ("<tool_call>", '{"name": "now", "arguments": {"x": "%s"}}</tool_call>'),
            ("[TOOL_CALLS]", 'now[ARGS]{"x": "%s"}'),
            ("<function=", "now>\n<parameter=x>\n%s\n</parameter>\n</function>"),
            ("<|python_tag|>", '{"name": "now", "parameters": {"x": "%s"}}'),
            ("<tool_calls>", '[{"name": "now", "arguments": {"x": "%s"}}]</tool_calls>'),
        )
    )
    cut = 2 + draw.below(len(tag) - 3)
    said = tag[cut:] + rest.replace("%s", word)
    between = draw.pick((THOUGHT_BETWEEN, CALL_BETWEEN))
    secret = Secret(word, calls=False)
    return (
        Piece("content", tag[:cut], plain=False, joined=True),
        between,
        Piece("content", said, secrets=(secret,), plain=False),
    )


def element_over_fields(draw: Draw, words: Words) -> tuple[Piece, ...]:
    """Half a tag of what may be HTML, at one end of the reasoning or at both."""
    secret = Secret(words.secret(), reasoning=True)
    begun = draw.pick(("<details ", '<details a="', "<details", "<think "))
    rest = draw.pick((">x", '">x', "x>", "y", ' a="b">x')) + " so"
    thought = Piece("reasoning", f" {secret.word}", secrets=(secret,), plain=False, joined=True)
    if draw.chance(2):
        thought = replace(thought, text=f"hm {begun}{secret.word}")
        return thought, Piece("content", rest, plain=False)
    return (
        Piece("content", f"See {begun}", plain=False, joined=True),
        thought,
        Piece("content", rest, plain=False),
    )


def half_tag_in_the_field(draw: Draw, words: Words) -> tuple[Piece, ...]:
    """Something like a call is open in the text, and half a tag ends the reasoning."""
    secret = Secret(words.secret(), reasoning=True, calls=False)
    begun = draw.pick(
        (
            "[TOOL_CALLS]<think>", "<tool_call>x <think>", "<|python_tag|> A</thinking> B", "<tool_call>A", "[TOOL_CALLS]now[ARGS]{",
            "<function=now>", '\n{"name": "now", ', "now(", "\n```tool_code\n",
        )
    )  # fmt: skip
    half = draw.pick(("<think ", "<|channel|>", "<details ", "<thi", "[THI", "<tool_call>", "</thi"))
    return (
        Piece("content", begun, plain=False, joined=True),
        Piece("reasoning", f"hm {half}{secret.word}", secrets=(secret,), plain=False, opens=True),
    )


INTERRUPTIONS: tuple[Maker, ...] = (
    interrupted_tag, tag_over_calls, thought_over_calls, thought_over_fields, thought_over_a_call, tag_over_reasoning, element_over_fields,
    half_tag_in_the_field,
)  # fmt: skip


def interruption(draw: Draw, words: Words) -> tuple[Piece, ...]:
    return draw.pick(INTERRUPTIONS)(draw, words)


ODD_OPENERS = (
    '<think a="b" c>', "<think a='b'>", "<think a=b>", '<think disabled="">', '<think class="a>b">', "<THINK effort=high>",
    "<think\t>", "<think\r\n>", "<think\u00a0>", "<think\u3000>", "< think>", "< think >", "<\u200bthink>", "<think\u200b>", "<think\ufeff>", "<th\u00adink>",
    "\uff1cthink\uff1e", "\uff1c think \uff1e", "\uff1cthink>", "<think\uff1e", "&lt;think>", "<think&gt;", "&lt; think &gt;", "&LT;think&GT;",
    "&#0060;think&#0062;", "&#X3C;think&#X3E;",
)  # fmt: skip
ODD_CLOSERS = (
    "</think>", "</ think>", "< /think>", "</think\t>", "</think\u00a0>", "\uff1c/think\uff1e", "\uff1c\uff0fthink\uff1e", "&lt;/think&gt;",
    "&lt;/ think &gt;", "&#60;/think&#62;", "</think&gt;",
)  # fmt: skip
"""Spellings of one tag that models, and what stands between them and us, have made of it or may."""


def odd_thought(draw: Draw, words: Words) -> tuple[Piece, ...]:
    """A thought between tags in odd spellings."""
    word, heard = words.secret(), words.heard()
    opener, closer = draw.pick(ODD_OPENERS), draw.pick(ODD_CLOSERS)
    text = f"{opener}{word}{closer}{heard} so. "
    return (Piece("content", text, secrets=(Secret(word),), words=(heard,)),)


def odd_body(draw: Draw, words: Words) -> tuple[Piece, ...]:
    """Something behind the tag of a call that begins no call."""
    word = words.secret()
    odd = draw.pick(
        (
            "\ufeff",
            "\u200b",
            "- ",
            "*",
            "\u2026",
            "\uff1a",
            "<![CDATA[",
            "\n# no\n",
            "// no\n",
            "<!-- no -->",
            "%",
            "@",
        )
    )
    begin, end = draw.pick(
        (
            ("<tool_call>", "</tool_call>"),
            ("<|tool_call|>", "<|/tool_call|>"),
            ("<|python_tag|>", "<|eom_id|>"),
        )
    )
    text = f'{begin}{odd}{{"name": "now", "arguments": {{"x": "{word}"}}}}{end}'
    return (Piece("content", text, secrets=(Secret(word, calls=False),), plain=False),)


def thought_in_a_broken_call(draw: Draw, words: Words) -> tuple[Piece, ...]:
    """A call that is none, and a thought in it, in which nothing ends it: neither its own end nor a call; the thought may end or not."""
    word, more = words.secret(), words.secret()
    opener, closer = draw.pick(FAMILIES)
    head, end = draw.pick(
        (
            ('{"name": "now", "arguments": {"x": 1} oops} ', "\n"),
            ('{"name": "now", "arguments": {"x": [', "\n\n"),
            ("now(x= ", "\n\n"),
            ("now {'x': 1 ", "\n\n"),
            ("[now(1), ", "\n\n"),
            ("so {'name': 'now', 'arguments': {'x': 1} ", "\n\n"),
            ('Action: now\nAction Input: {"x": [', "\n"),
            ("<now>", "</now>\n"),
            ("```tool_code\nnow(", "\n```\n"),
            ('<tool_call>{"name": 5, x ', "</tool_call>\n"),
        )
    )
    call = '<tool_call>{"name": "now", "arguments": {"x": "%s"}}</tool_call>'
    hidden = f"hm {word}\n{draw.pick(('', call)).replace('%s', more)}{end}"
    text = f"\n{head}{opener}{hidden}{more}{draw.pick((closer, ''))}"
    return (
        Piece(
            "content",
            text,
            secrets=(Secret(word), Secret(more)),
            plain=False,
            opens=True,
        ),
    )


def stray(draw: Draw, words: Words) -> tuple[Piece, ...]:
    """Anything that a tag can be made of."""
    tags = [tag for pair in FAMILIES for tag in pair]
    bits = [draw.pick((*tags, *PROSE, "`", "<tool_call>", "</tool_call>", "<function=", "now>", "{", '"', "```\n",
                       "[TOOL_CALLS]", "\n{", "\n[", '{"name": "now", ', '"arguments": {', "}}", "<|python_tag|>", "<tool_calls>", "&lt;", "<parameter=x>"))
            for _ in range(1 + draw.below(4))]  # fmt: skip
    return (Piece("content", "".join(bits), plain=False, opens=True, mentions=True),)


MAKERS: tuple[Maker, ...] = (
    prose, odd_thought, closed_thought, nested_thought, knotted_thought, open_thought, orphan_closer, reasoning, blank_reasoning,
    reasoning_with_tags, closer_over_fields, opener_over_fields, hermes_call, xml_call, native_call,
    native_call_and_tags, broken_call, broken_arguments, unclosed_call, fenced_call, fenced_code, mentioned_tag,
    stray, call_in_thought, call_in_lost_thought, bare_tag, call_of_any_form, call_of_any_form, named_call, python_call, line_of_a_call, named_prose, broken_bare_call,
    orphan_parameter, other_json, call_in_reasoning, closer_in_an_argument, broken_off_thought,
    call_in_thought_behind_a_broken_one, interrupted_call, interruption, odd_body, thought_in_a_broken_call,
)  # fmt: skip


def draw_reply(draw: Draw) -> Reply:
    """A reply of up to five parts."""
    words = Words()
    pieces: list[Piece] = []
    makers: list[Maker] = []
    for _ in range(1 + draw.below(5)):
        maker = draw.pick(MAKERS)
        if maker in (stray, orphan_parameter) and not {
            broken_off_thought,
            call_in_thought_behind_a_broken_one,
            thought_in_a_broken_call,
        }.isdisjoint(makers):
            continue  # the next parameter of the call: it has gone on, and what ended the thought was in an argument
        if (
            maker in (call_in_thought_behind_a_broken_one, thought_in_a_broken_call)
            and open_thought in makers
        ):
            continue  # all of it is in that thought, which never ends: then a call in it counts
        makers.append(maker)
        pieces += maker(draw, words)
    finish = draw.pick(("stop", "stop", "stop", "stop", "tool_calls", "length", "content_filter", None))
    return Reply(tuple(pieces), finish, usage=draw.below(3) > 0, done=not draw.chance(8))


# ---------------------------------------------------------------------------------------- the wire


@dataclass
class Writer:
    """Writes a reply as one of the engines does; each piece is cut into deltas by `cut`."""

    dialect: Dialect
    cut: Callable[[str], Iterable[str]]
    completion: bool = False  # /v1/completions: `text`, and no other field
    merged: bool = False  # a delta may say several fields at once, as vLLM's do
    noisy: bool = False  # pings, empty deltas and counts stand between what is said
    token: int = 0  # characters of a token; log-probabilities are told of each. 0: they are not told
    _calls: int = field(default=0, init=False)

    def write(self, reply: Reply) -> bytes:
        """The bytes of the stream."""
        out = [] if self.completion else [self._frame(self._role())]
        deltas = [delta for piece in reply.pieces for delta in self._deltas(piece)]
        for delta in _merged(deltas) if self.merged else deltas:
            out += [*(self._noise() if self.noisy else ()), self._frame(delta)]
        usage = {"prompt_tokens": 3, "completion_tokens": 7, "total_tokens": 10}
        end: dict[str, Any] = {}
        if reply.finish is not None:
            if reply.usage and self.dialect == "openai":
                end = {"usage": usage}
            out.append(self._frame({}, reply.finish, **end))
            if reply.usage and not end:
                out.append(_event({**_SHARED, "choices": [], "usage": usage}))
        if reply.done:
            out.append(b"data: [DONE]\n\n")
        return b"".join(out)

    def _noise(self) -> list[bytes]:
        counts = _event({**_SHARED, "choices": [], "usage": {"completion_tokens": 1}})
        return [
            b": ping\n\n",
            self._frame({}),
            self._frame(self._role()),
            counts,
            b"event: message\n\n",
        ]

    def _role(self) -> dict[str, Any]:
        return {"role": "assistant", "content": None if self.dialect == "llama-server" else ""}

    def _deltas(self, piece: Piece) -> list[dict[str, Any]]:
        if piece.field == "content":
            return [{"content": part} for part in self.cut(piece.text)]
        if piece.field == "reasoning":
            name = "reasoning" if self.dialect == "vllm" else "reasoning_content"
            return [{name: part} for part in self.cut(piece.text)]
        index, self._calls = self._calls, self._calls + 1
        head = {"index": index, "id": f"c{index}", "type": "function", "function": {"name": piece.name}}
        return [
            {"tool_calls": [head]},
            *({"tool_calls": [{"index": index, "function": {"arguments": p}}]} for p in self.cut(piece.text)),
        ]

    def _frame(self, delta: dict[str, Any], finish: str | None = None, **more: Any) -> bytes:
        if self.completion:
            choice = {"index": 0, "text": delta.get("content") or "", "finish_reason": finish}
        else:
            told = self._logprobs(delta) if self.token else None
            choice = {"index": 0, "delta": delta, "logprobs": told, "finish_reason": finish}
        if self.dialect == "vllm" and finish:
            choice["stop_reason"] = None
        return _event({**_SHARED, "choices": [choice], **more})

    def _logprobs(self, delta: dict[str, Any]) -> dict[str, Any]:
        """Of the tokens of every field, as vLLM tells them."""
        said = "".join(delta.get(name) or "" for name in _ORDER[:3])
        tokens = [said[at : at + self.token] for at in range(0, len(said), self.token)]
        return {"content": [{"token": token, "logprob": -1.0, "top_logprobs": []} for token in tokens]}


_ORDER = ("reasoning", "reasoning_content", "content", "tool_calls")


def _merged(deltas: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Neighbours in one delta, where its fields are read in the order in which they were said."""
    out: list[dict[str, Any]] = []
    last = len(_ORDER)
    for delta in deltas:
        place = _ORDER.index(next(iter(delta)))
        if place > last:
            out[-1] |= delta
        else:
            out.append(dict(delta))
        last = place
    return out


_SHARED = {"id": "x", "object": "chat.completion.chunk", "created": 1, "model": "m"}


def _event(payload: Any) -> bytes:
    return b"data: " + json.dumps(payload, ensure_ascii=False).encode() + b"\n\n"


def whole_message(reply: Reply) -> bytes | None:
    """The reply as one JSON object, where one can hold it: thoughts, then text, then calls."""
    order = [("reasoning", "content", "call").index(piece.field) for piece in reply.pieces]
    if order != sorted(order) or reply.finish is None:
        return None
    text = {
        name: "".join(p.text for p in reply.pieces if p.field == name) for name in ("content", "reasoning")
    }
    calls = [
        {"id": f"c{n}", "type": "function", "function": {"name": piece.name, "arguments": piece.text}}
        for n, piece in enumerate(piece for piece in reply.pieces if piece.field == "call")
    ]
    message = {"role": "assistant", **text, "tool_calls": calls or None}
    usage = {"prompt_tokens": 3, "completion_tokens": 7, "total_tokens": 10} if reply.usage else None
    choice = {"index": 0, "message": message, "finish_reason": reply.finish}
    return json.dumps({"id": "x", "object": "chat.completion", "choices": [choice], "usage": usage}).encode()
