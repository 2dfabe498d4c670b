"""Puts tool calls together from their fragments, by index, and repairs nothing. Pure."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Call:
    """One tool call as it came: `arguments` is the raw text, whether or not it is JSON."""

    index: int
    id: str | None
    name: str
    arguments: str


@dataclass(slots=True)
class _Draft:
    index: int
    id: str | None = None
    name: str = ""
    arguments: list[str] = field(default_factory=list)

    @property
    def text(self) -> str:
        return "".join(self.arguments)


class CallAssembler:
    """`feed` it every delta of `tool_calls`; `made` are the calls in the order they began.

    What is odd but loses nothing is added to `oddities`.
    """

    def __init__(self, oddities: list[str]) -> None:
        self._oddities = oddities
        self._drafts: list[_Draft] = []
        self._open: dict[int, _Draft] = {}

    @property
    def made(self) -> tuple[Call, ...]:
        """The calls."""
        return tuple(Call(d.index, d.id, d.name, d.text) for d in self._drafts)

    def feed(self, position: int, delta: dict[str, Any]) -> bool:
        """One entry of a delta, and its place in it; True if it said a name or an argument."""
        function = delta.get("function")
        function = function if isinstance(function, dict) else {}
        index = delta.get("index")
        index = index if isinstance(index, int) else position
        name, call_id = _word(function.get("name")), _word(delta.get("id"))
        fragment = self._fragment(function.get("arguments"))
        draft = self._draft(index, name, call_id)
        draft.id = draft.id or call_id
        draft.name = draft.name or name or ""
        draft.arguments.append(fragment)
        return bool(name or fragment)

    def _draft(self, index: int, name: str | None, call_id: str | None) -> _Draft:
        draft = self._open.get(index)
        if draft is None or (name and _is_over(draft, name, call_id)):
            if draft is not None:
                self._oddities.append("two calls have one index")
            draft = self._open[index] = _Draft(index)
            self._drafts.append(draft)
        return draft

    def _fragment(self, arguments: Any) -> str:
        if arguments is None or isinstance(arguments, str):
            return arguments or ""
        self._oddities.append("arguments came as JSON, not as text")
        try:
            return json.dumps(arguments, ensure_ascii=False)
        except RecursionError:
            return ""


def _is_over(draft: _Draft, name: str, call_id: str | None) -> bool:
    """Whether a name under an index in use begins a new call.

    Some servers say a call's name again in every delta; others (transformers serve) send each call
    whole in one delta, always with index 0 and one id.
    """
    other_id = bool(call_id and draft.id and call_id != draft.id)
    return other_id or bool(draft.name and (draft.name != name or _is_whole(draft.text)))


def _is_whole(text: str) -> bool:
    try:
        return isinstance(json.loads(text), dict)
    except (ValueError, RecursionError):
        return False


def _word(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None
