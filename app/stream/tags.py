"""Tags in a model's text: which there are, as data, and how they are found in text that arrives in pieces.

A family is the set of tags that one kind of model puts around its thoughts. Matching ignores case and
tolerates white space inside the brackets, because models write `<Think>` and `</ think>`. Sources:
the chat templates and the reasoning parsers of vLLM and SGLang for the models named in `FAMILIES`,
and OpenAI's description of the harmony format for gpt-oss.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Literal

from msgspec import Struct

Role = Literal["open", "close", "start", "final", "end", "empty", "call", "function", "call_end"]
"""What a tag does. `open`/`close`: a thought begins or ends; they nest. `start`: a header or channel
that is no speech begins; it does not nest. `final`: what follows is for the user, whatever came before.
`end`: ends a thought, and means nothing in speech. `empty`: an empty thought in one tag.
`call`, `function`: a tool call begins. `call_end`: one ends."""


class Family(Struct, frozen=True):
    """The tags of one kind of model, by role. `*` stands for up to 80 characters without `<` and `|`."""

    opens: tuple[str, ...] = ()
    closes: tuple[str, ...] = ()
    starts: tuple[str, ...] = ()
    finals: tuple[str, ...] = ()
    ends: tuple[str, ...] = ()


def _xml(name: str) -> Family:
    return Family(opens=(f"<{name}>",), closes=(f"</{name}>",))


FAMILIES: dict[str, Family] = {
    "think": _xml("think"),  # Qwen, DeepSeek-R1, GLM, MiniMax and most others
    "thinking": _xml("thinking"),
    "thought": _xml("thought"),  # EXAONE Deep
    "thoughts": _xml("thoughts"),
    "reasoning": _xml("reasoning"),
    "reflection": _xml("reflection"),
    "scratchpad": _xml("scratchpad"),
    "inner_monologue": _xml("inner_monologue"),
    "seed": _xml("seed:think"),  # ByteDance Seed-OSS
    "mistral": Family(opens=("[THINK]",), closes=("[/THINK]",)),  # Magistral
    "kimi": Family(opens=("◁think▷",), closes=("◁/think▷",)),  # Kimi-VL-Thinking
    "cohere": Family(  # Command A Reasoning
        opens=("<|START_THINKING|>",),
        closes=("<|END_THINKING|>",),
        finals=("<|START_RESPONSE|>",),
        ends=("<|END_RESPONSE|>",),
    ),
    "harmony": Family(  # gpt-oss: everything but the channel `final` is kept from the user
        starts=("<|start|>", "<|channel|>*<|message|>", "<|channel|>*<|constrain|>*<|message|>"),
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

CALL_TAGS: dict[Role, tuple[str, ...]] = {
    "call": ("<tool_call>",),
    "function": ("<function=",),
    "call_end": ("</tool_call>", "</function>", "</parameter>"),
}

LONGEST = 256
"""Characters of the longest tag, with every tolerated space: more is never held for one."""

_SPACE = r"\s{0,4}"
_WILD = r"[^<|]{0,80}"
_ATTRIBUTE = (r"\s{1,4}", r"[\w:.-]{1,16}", r"\s{0,2}", "=", r"\s{0,2}")
_VALUES = (('"', r'[^"<>]{0,32}', '"'), ("'", r"[^'<>]{0,32}", "'"))
_TOKEN = re.compile(r"<\|")

_Atoms = tuple[str, ...]
"""A tag as patterns in a row. Each is one character, or a class whose every shorter match is a match:
then a tag that is cut off anywhere is matched by the first of them."""


def _atoms(tag: str) -> Iterator[_Atoms]:
    """The written forms of a tag. Special tokens (`<|…|>`) have one; the others tolerate spaces."""
    if _TOKEN.match(tag):
        yield tuple(_WILD if c == "*" else re.escape(c) for c in tag)
        return
    first, body, last = tag[0], tag[1:-1], tag[-1]
    slash = ("/", _SPACE) if body.startswith("/") else ()
    name = tuple(re.escape(c) for c in body.lstrip("/"))
    head = (re.escape(first), _SPACE, *slash, *name)
    yield (*head, _SPACE, re.escape(last))
    if first == "<" and last == ">" and not slash:
        for value in _VALUES:
            yield (*head, *_ATTRIBUTE, *value, _SPACE, ">")


def _empty(tag: str) -> _Atoms:
    """`<think/>`: the opening tag of an XML-like family, closed in itself."""
    return ("<", _SPACE, *(re.escape(c) for c in tag[1:-1]), _SPACE, "/", _SPACE, ">")


def _beginning(atoms: Sequence[str]) -> str:
    """A pattern for everything that may still become this tag."""
    pattern = ""
    for atom in reversed(atoms):
        pattern = f"{atom}(?:{pattern})?" if pattern else atom
    return pattern


def _hint(atoms: Sequence[str]) -> str:
    """A cheap pattern for the first two characters, or for the first one at the end of the text."""
    space, rest = (_SPACE, atoms[2:]) if atoms[1] == _SPACE else ("", atoms[1:])
    return f"{atoms[0]}{space}(?:{rest[0]}|\\Z)"


class Scanner:
    """Finds the tags of some roles in text that arrives in pieces."""

    def __init__(self, tags: Mapping[Role, Sequence[_Atoms]]) -> None:
        roles = {role: "|".join("".join(a) for a in forms) for role, forms in tags.items() if forms}
        forms = [a for role in tags.values() for a in role]
        flags = re.IGNORECASE
        groups = (f"(?P<{role}>{roles[role]})" for role in _ORDER if role in roles)
        self._tag = re.compile("|".join(groups) or r"(?!)", flags)
        self._part = re.compile("|".join(_beginning(a) for a in forms) or r"(?!)", flags)
        self._first = re.compile("|".join(sorted({_hint(a) for a in forms})) or r"(?!)", flags)

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
            match = self._tag.match(text, at)
            if match is None:
                if size - at <= LONGEST and self._part.fullmatch(text, at):
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
        return self._tag.match(text, at)

    def may_become(self, text: str, at: int = 0) -> bool:
        """Whether everything from `at` on may still become one tag."""
        return len(text) - at <= LONGEST and self._part.fullmatch(text, at) is not None


_ORDER: tuple[Role, ...] = (
    "open", "close", "empty", "final", "start", "end", "call", "function", "call_end",
)  # fmt: skip
"""Roles in the order in which they are tried: `final` is the more exact of two channel headers."""


class TagSet:
    """The tags that are looked for in one reply.

    think: the scanner for think tags alone. text: the same, and with tools the tags of calls.
    """

    def __init__(self, families: tuple[str, ...], tools: bool) -> None:
        self.families = families
        self.think = _scanner(families, False)
        self.text = _scanner(families, tools)


@lru_cache(maxsize=64)
def _scanner(families: tuple[str, ...], tools: bool) -> Scanner:
    chosen = [FAMILIES[name] for name in families]
    forms: dict[Role, list[_Atoms]] = {
        "open": [a for f in chosen for tag in f.opens for a in _atoms(tag)],
        "close": [a for f in chosen for tag in f.closes for a in _atoms(tag)],
        "empty": [_empty(tag) for f in chosen for tag in f.opens if tag.endswith(">") and "|" not in tag],
        "final": [a for f in chosen for tag in f.finals for a in _atoms(tag)],
        "start": [a for f in chosen for tag in f.starts for a in _atoms(tag)],
        "end": [a for f in chosen for tag in f.ends for a in _atoms(tag)],
    }
    if tools:
        for role, tags in CALL_TAGS.items():
            forms[role] = [a for tag in tags for a in _atoms(tag)]
    return Scanner(forms)


CALL_SCANNER = Scanner({role: [a for tag in tags for a in _atoms(tag)] for role, tags in CALL_TAGS.items()})
"""Finds the tags of calls alone."""


@lru_cache(maxsize=64)
def tag_set(families: tuple[str, ...], tools: bool) -> TagSet:
    """The scanners of these families, compiled once. Raises KeyError for an unknown name."""
    return TagSet(families, tools)
