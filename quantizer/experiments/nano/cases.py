"""Held-out cases and their scoring. A case is what is asked, and what a right reply must contain.

A dialogue that ends with a tool call makes two cases: the call, and the answer to its result.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gates.detect.everyday import find_everyday_fault
from gates.suite.load import load_suite
from quantizer.experiments.nano import annie
from quantizer.experiments.nano.conversation import Dialogue, ExpectedToolCall
from quantizer.experiments.nano.generate import CATEGORIES, conversation
from quantizer.experiments.nano.template import Message, Style


@dataclass(frozen=True, slots=True)
class HeldOutCase:
    """calls: the exact calls of a right reply. must: texts that its content must contain."""

    id: str
    group: str
    messages: list[Message]
    tools: list[dict[str, Any]]
    thinking: bool
    style: Style
    calls: tuple[ExpectedToolCall, ...]
    must: tuple[str, ...]
    everyday: Mapping[str, Any] | None = None  # what the gates' detector expects of an everyday request


@dataclass(frozen=True, slots=True)
class ModelReply:
    """What a model returned: spoken content, thought, and calls with parsed arguments."""

    content: str
    thought: str = ""
    calls: tuple[ExpectedToolCall, ...] = ()
    finished: bool = True


def cases(seed: int, each: int) -> list[HeldOutCase]:
    """`each` held-out dialogues of every category, in a fixed order."""
    lessons = [(category, i) for i in range(each) for category in CATEGORIES]
    return [case for name, i in lessons for case in _of(f"{name}-{i}", conversation(seed, "test", i, name))]


def facts(seed: int, first: int, count: int) -> list[HeldOutCase]:
    """`count` further held-out dialogues that end with a fact, from number `first` on."""
    numbers = range(first, first + count)
    return [case for i in numbers for case in _of(f"fact-{i}", conversation(seed, "test", i, "fact"))]


def everyday_cases() -> list[HeldOutCase]:
    """The everyday requests of the gates' suite."""
    return [
        HeldOutCase(c.id, f"everyday {c.turn}", [dict(m) for m in c.messages], [dict(t) for t in c.tools],
                    False, "hermes", (), (), c.expect["everyday"])
        for c in load_suite("annie-nano").of("everyday")
    ]  # fmt: skip


def _of(name: str, talk: Dialogue) -> list[HeldOutCase]:
    lesson, messages = talk.lesson, annie.opening(talk)
    common = (talk.schemas, talk.thinking, talk.style)
    if not lesson.calls:
        return [HeldOutCase(name, lesson.kind, messages, *common, (), lesson.must)]
    after = messages + annie.called(lesson, lesson.thought if talk.thinking else "")
    group = {"parallel": "parallel call"}.get(lesson.kind, "call")
    return [
        HeldOutCase(f"{name}-call", group, messages, *common, lesson.calls, ()),
        HeldOutCase(f"{name}-use", "result used", after, *common, (), lesson.must),
    ]


# Bold, headings, bullets, numbered lists, code, links, tables; a minus or a star inside a sum is none.
_MARKDOWN = re.compile(r"\*\*|^\s*#{1,6} |^\s*[-*+] |^\s*\d+[.)] |`|\]\(|^\s*\|", re.MULTILINE)
_TAGS = re.compile(r"</?think>|</?tool_call>|</?tool_response>|<function=|<\|im_")


def has_markdown(text: str) -> bool:
    """Whether a text contains markdown, which a speech synthesizer would read aloud."""
    return bool(_MARKDOWN.search(text))


def judge(case: HeldOutCase, reply: ModelReply) -> dict[str, bool]:
    """For each manner that the case tests, whether the reply kept it."""
    leaked = bool(_TAGS.search(reply.content)) or (not case.thinking and bool(reply.thought))
    marks = {
        "no leak": not leaked,
        "no markdown": not has_markdown(reply.content),
        "finished": reply.finished,
    }
    if case.thinking:
        marks["thought closed"] = bool(reply.thought) and reply.finished
    if case.everyday is not None:
        names = [tool["function"]["name"] for tool in case.tools]
        faults = find_everyday_fault(reply.content, case.everyday, calls=len(reply.calls), tools=names)
        return marks | {case.group: not faults}
    if case.calls:
        return marks | {case.group: reply.calls == case.calls and not reply.content.strip()}
    right = not reply.calls and bool(reply.content.strip())
    marks["no needless call"] = not reply.calls
    group = f"{case.group}{' thinking' if case.thinking and case.group == 'two_step' else ''}"
    return marks | {group: right and _has_all(reply.content, case.must)}


def _has_all(content: str, must: tuple[str, ...]) -> bool:
    """Whether the content contains every text, ignoring case."""
    return all(text.casefold() in content.casefold() for text in must)


def table(judged: Iterable[dict[str, bool]]) -> dict[str, tuple[int, int]]:
    """(right, asked) for every manner, most asked first."""
    counts: dict[str, list[int]] = defaultdict(lambda: [0, 0])
    for marks in judged:
        for name, kept in marks.items():
            counts[name][0] += kept
            counts[name][1] += 1
    return {name: (n, of) for name, (n, of) in sorted(counts.items(), key=lambda item: -item[1][1])}


# ------------------------------------------------------------------- raw text, where no server parses

_HERMES = re.compile(r"<tool_call>\n(\{.*\})\n</tool_call>")
_XML = re.compile(r"<tool_call>\n<function=(.+)>\n((?:.|\n)*?)</function>\n</tool_call>")
_PARAMETER = re.compile(r"<parameter=(.+)>\n((?:.|\n)*?)\n</parameter>\n")


def read_reply(text: str, case: HeldOutCase, finished: bool = True) -> ModelReply:
    """Parse a model's raw text after the prompt (without the end-of-turn token)."""
    thought = ""
    if case.thinking and "</think>" in text:
        thought, text = text.split("</think>", 1)
    calls = _hermes_calls(text) if case.style == "hermes" else _xml_calls(text, case.tools)
    if calls:
        text = (_HERMES if case.style == "hermes" else _XML).sub("", text)
    return ModelReply(text.strip(), thought.strip(), calls, finished)


def _hermes_calls(text: str) -> tuple[ExpectedToolCall, ...]:
    try:
        found = [json.loads(body) for body in _HERMES.findall(text)]
        return tuple(ExpectedToolCall(call["name"], call["arguments"]) for call in found)
    except (ValueError, KeyError):
        return ()


def _xml_calls(text: str, tools: Sequence[dict[str, Any]]) -> tuple[ExpectedToolCall, ...]:
    return tuple(
        ExpectedToolCall(name, {k: _typed(v, name, k, tools) for k, v in _PARAMETER.findall(body)})
        for name, body in _XML.findall(text)
    )


def _typed(value: str, name: str, key: str, tools: Sequence[dict[str, Any]]) -> Any:
    """An XML value converted by the schema of its parameter: strings unchanged, anything else as JSON."""
    for tool in tools:
        if tool["function"]["name"] == name:
            kind = tool["function"]["parameters"]["properties"].get(key, {}).get("type")
            if kind != "string":
                try:
                    return json.loads(value)
                except ValueError:
                    return value
    return value


Score = tuple[dict[str, tuple[int, int]], list[tuple[HeldOutCase, ModelReply]]]
"""The table of scores, and the cases with a wrong reply."""


def scored(asked: Sequence[HeldOutCase], replies: Sequence[ModelReply]) -> Score:
    """Judge a reply to each case."""
    got = list(zip(asked, replies, strict=True))
    judged = [judge(case, reply) for case, reply in got]
    missed = [pair for pair, marks in zip(got, judged, strict=True) if not all(marks.values())]
    return table(judged), missed
