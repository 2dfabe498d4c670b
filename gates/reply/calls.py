"""Assembles tool calls from their streamed fragments, by index, without repairing anything. Pure."""

import json
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class ReplyCall:
    """A tool call of a reply: `arguments` is the raw text, whether or not it is JSON."""

    index: int
    id: str | None
    name: str
    arguments: str


@dataclass(slots=True)
class _PartialCall:
    index: int
    id: str | None = None
    name: str = ""
    arguments: list[str] = field(default_factory=list)

    @property
    def text(self) -> str:
        return "".join(self.arguments)


class CallAssembler:
    """Takes every delta of `tool_calls` by `feed`. Harmless departures from the protocol are added to `oddities`."""

    def __init__(self, oddities: list[str]) -> None:
        self._oddities = oddities
        self._drafts: list[_PartialCall] = []
        self._open: dict[int, _PartialCall] = {}

    @property
    def made(self) -> tuple[ReplyCall, ...]:
        return tuple(ReplyCall(d.index, d.id, d.name, d.text) for d in self._drafts)

    def feed(self, position: int, delta: dict[str, Any]) -> bool:
        """Add one entry of a delta, at its position; True if it contained a name or arguments."""
        function = delta.get("function")
        function = function if isinstance(function, dict) else {}
        index = delta.get("index")
        index = index if isinstance(index, int) else position
        name, call_id = _text_or_none(function.get("name")), _text_or_none(delta.get("id"))
        fragment = self._fragment(function.get("arguments"))
        draft = self._draft(index, name, call_id)
        draft.id = draft.id or call_id
        draft.name = draft.name or name or ""
        draft.arguments.append(fragment)
        return bool(name or fragment)

    def _draft(self, index: int, name: str | None, call_id: str | None) -> _PartialCall:
        draft = self._open.get(index)
        if draft is None or (name and _begins_new_call(draft, name, call_id)):
            if draft is not None:
                self._oddities.append("two calls have one index")
            draft = self._open[index] = _PartialCall(index)
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


def _begins_new_call(draft: _PartialCall, name: str, call_id: str | None) -> bool:
    """Whether a name under an index in use begins a new call: some servers repeat a call's name in every delta, others (transformers
    serve) send each call whole, always with index 0 and the same id.
    """
    other_id = bool(call_id and draft.id and call_id != draft.id)
    return other_id or bool(draft.name and (draft.name != name or _is_whole(draft.text)))


def _is_whole(text: str) -> bool:
    try:
        return isinstance(json.loads(text), dict)
    except (ValueError, RecursionError):
        return False


def _text_or_none(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None
