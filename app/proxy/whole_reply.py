"""The outline of an engine's whole reply, read before the stream core builds its values. Pure.

A reply of 8 MiB may hold millions of arrays and objects where a few numbers belong. To build them takes up to forty times
its bytes, and a second in which no other thread runs. What a caller may hear is text, of which there may be much; all else,
wherever it stands and however often, may be REST_BYTES.
"""

from typing import Any

import msgspec
from msgspec import Raw, Struct

from app.errors.tree import EngineBroke
from app.stream.chunks import UNREADABLE, why_unreadable

REST_BYTES = 256 << 10
MAX_OBJECTS = 64 << 10
"""Opening braces in the calls of a reply, those in the text of arguments included."""

_NONE = Raw(b"null")


class _Said(Struct, gc=False):
    content: Raw = _NONE
    reasoning: Raw = _NONE
    reasoning_content: Raw = _NONE
    tool_calls: Raw = _NONE


class _Choice(Struct, gc=False):
    message: Raw = _NONE
    delta: Raw = _NONE
    text: Raw = _NONE
    logprobs: Raw = _NONE  # read by `app.stream.spoken_tokens`, which bounds them


class _Reply(Struct, gc=False):
    choices: Raw = Raw(b"[]")


_reply = msgspec.json.Decoder(_Reply).decode
_choices = msgspec.json.Decoder(tuple[_Choice]).decode  # a second one is an error where it begins
_said = msgspec.json.Decoder(_Said | None).decode


def check_outline(raw: bytes) -> None:
    """Raises EngineBroke: upstream_malformed, or upstream_too_large."""
    if len(raw) <= REST_BYTES:
        return
    try:
        choices = _reply(raw).choices
        rest = len(raw) - len(choices)
        for choice in () if len(choices) <= REST_BYTES else _choices(choices):
            rest += len(choices) - sum(map(len, _values(choice)))
            for message in (choice.message, choice.delta):
                said = _said(message)
                if said is None:
                    continue
                rest += len(message) - sum(map(len, _values(said)))
                if bytes(said.tool_calls).count(b"{") > MAX_OBJECTS:
                    raise _too_large(f"{MAX_OBJECTS} objects in calls")
    except UNREADABLE as error:
        raise EngineBroke(
            f"the engine sent bad JSON: {why_unreadable(error)}", "upstream_malformed"
        ) from error
    if rest > REST_BYTES:
        raise _too_large(f"{REST_BYTES} bytes that are no text")


def _values(struct: Struct) -> list[Any]:
    return [getattr(struct, name) for name in struct.__struct_fields__]


def _too_large(what: str) -> EngineBroke:
    return EngineBroke(f"the engine's whole reply has more than {what}", "upstream_too_large")
