"""The values that the dialogue generator makes: calls, turns and dialogues."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from quantizer.experiments.nano.template import Style
from quantizer.experiments.nano.tools import ToolVariant

Kit = Mapping[str, ToolVariant]  # the known tools of a conversation, by key


@dataclass(frozen=True, slots=True)
class ExpectedToolCall:
    """A tool call with its JSON arguments."""

    name: str
    arguments: dict[str, Any]


@dataclass(frozen=True, slots=True)
class DialogueTurn:
    """One user message and everything that follows it.

    answer: what Annie says at the end. must: texts that a right answer contains. results: one tool message for each
    of `calls`. thought: comes before the calls or the answer. after: the thought between the results and the
    answer.
    """

    kind: str
    user: str
    answer: str
    thought: str
    must: tuple[str, ...] = ()
    calls: tuple[ExpectedToolCall, ...] = ()
    results: tuple[str, ...] = ()
    after: str = ""
    about: str = ""  # whom or what it was about, for a follow-up that leaves it out


@dataclass(frozen=True, slots=True)
class Dialogue:
    """A system prompt or none, the tools offered, and turns. The last turn is the one that is learned or tested."""

    system: str | None
    tools: tuple[ToolVariant, ...]
    exchanges: tuple[DialogueTurn, ...]
    thinking: bool = False
    style: Style = "hermes"

    @property
    def lesson(self) -> DialogueTurn:
        return self.exchanges[-1]

    @property
    def schemas(self) -> list[dict[str, Any]]:
        return [tool.schema for tool in self.tools]


@dataclass(frozen=True, slots=True)
class MarkedText:
    """Training text in parts: (text, whether it is learned) in order."""

    parts: tuple[tuple[str, bool], ...] = field(default_factory=tuple)

    @property
    def text(self) -> str:
        return "".join(text for text, _ in self.parts)
