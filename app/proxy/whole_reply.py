"""The outline of an engine's whole reply, read before the stream core builds its values. Pure.

A reply of 8 MiB may hold millions of arrays and objects where a few numbers belong. To build them takes up to forty times
its bytes, and a second in which no other thread runs. What a caller may hear is text, of which there may be much; all else,
wherever it stands and however often, may be REST_BYTES. Log-probabilities may be more, where they are asked for, and are
read in pieces, between which other threads run.
"""

from collections.abc import Iterator
from typing import Any

import msgspec
from msgspec import Raw, Struct

from app.errors.tree import EngineBroke
from gates.reply.chunks import UNREADABLE, why_unreadable

REST_BYTES = 256 << 10
MAX_OBJECTS = 64 << 10
"""Opening braces in the calls of a reply, those in the text of arguments included."""

MAX_TOKENS = 512 << 10
"""Opening braces in the log-probabilities of a reply."""
MAX_LEGACY_BYTES = 1 << 20
"""Log-probabilities in the form of a legacy completion, whose parallel lists are read in one go."""
PIECE_BYTES = 64 << 10
"""Log-probabilities that are read in one go, and the most of one token with its alternatives."""

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
    logprobs: Raw = _NONE


class _Logprobs(Struct, gc=False):
    content: Raw = _NONE  # chat's form


class _Object(Struct, gc=False):
    """An object, whatever is in it."""


class _Reply(Struct, gc=False):
    choices: Raw = Raw(b"[]")


_reply = msgspec.json.Decoder(_Reply).decode
_choices = msgspec.json.Decoder(tuple[_Choice]).decode  # a second one is an error where it begins
_said = msgspec.json.Decoder(_Said | None).decode
_logprobs = msgspec.json.Decoder(_Logprobs | None).decode
_objects = msgspec.json.Decoder(list[_Object] | None).decode
_tokens = msgspec.json.Decoder(list[Raw] | None).decode


def check_outline(raw: bytes) -> None:
    """Raises EngineBroke: upstream_malformed, or upstream_too_large."""
    if len(raw) <= REST_BYTES:
        return
    try:
        choices = _reply(raw).choices
        rest = len(raw) - len(choices)
        for choice in () if len(choices) <= REST_BYTES else _choices(choices):
            rest += len(choices) - sum(map(len, _values(choice))) + _no_text(choice.text)
            _check_logprobs(choice.logprobs)
            for message in (choice.message, choice.delta):
                said = _said(message)
                if said is None:
                    continue
                rest += len(message) - sum(map(len, _values(said)))
                rest += sum(map(_no_text, (said.content, said.reasoning, said.reasoning_content)))
                if bytes(said.tool_calls).count(b"{") > MAX_OBJECTS:
                    raise _too_large(f"{MAX_OBJECTS} objects in calls")
    except UNREADABLE as error:
        raise EngineBroke(
            f"the engine sent bad JSON: {why_unreadable(error)}", "upstream_malformed"
        ) from error
    if rest > REST_BYTES:
        raise _too_large(f"{REST_BYTES} bytes that are no text")


def logprob_pieces(raw: bytes) -> Iterator[bytes]:
    """The same reply for who wants nothing but its log-probabilities, in parts. `check_outline` has passed it."""
    if len(raw) <= REST_BYTES:
        yield raw
        return
    for choice in _choices(_reply(raw).choices):
        said = _said(choice.delta) or _said(choice.message)
        told = _logprobs(choice.logprobs)
        if told is None or (
            said is not None and (_is_said(said.reasoning) or _is_said(said.reasoning_content))
        ):
            continue
        if told.content == _NONE:
            yield _piece(choice.logprobs)
            continue
        part: list[Raw] = []
        size = 0
        for token in _tokens(told.content) or ():
            if size + len(token) > PIECE_BYTES:
                yield _piece(b'{"content":[%b]}' % b",".join(part))
                part, size = [], 0
            part.append(token)
            size += len(token)
        yield _piece(b'{"content":[%b]}' % b",".join(part))


def _piece(logprobs: bytes | Raw) -> bytes:
    return b'{"choices":[{"logprobs":%b}]}' % bytes(logprobs)


def _is_said(field: Raw) -> bool:
    return bytes(field) not in (b"null", b'""')


def _no_text(field: Raw) -> int:
    """The bytes of a field in which text belongs, if it is anything else."""
    return 0 if bytes(memoryview(field)[:1]) == b'"' else len(field)


def _check_logprobs(logprobs: Raw) -> None:
    """Raises EngineBroke for tokens that are too many, or too large."""
    told = _logprobs(logprobs)
    content = _NONE if told is None else told.content
    beside = len(logprobs) - len(content)
    if beside > MAX_LEGACY_BYTES:
        raise _too_large(f"{MAX_LEGACY_BYTES} bytes of log-probabilities that are not chat's")
    if bytes(logprobs).count(b"{") > (MAX_OBJECTS if beside > REST_BYTES else MAX_TOKENS):
        raise _too_large(f"{MAX_TOKENS} log-probabilities")
    _objects(content)  # before their bytes are kept: of these there are not too many
    if any(len(token) > PIECE_BYTES for token in _tokens(content) or ()):
        raise _too_large(f"{PIECE_BYTES} bytes of log-probabilities in one place")


def _values(struct: Struct) -> list[Any]:
    return [getattr(struct, name) for name in struct.__struct_fields__]


def _too_large(what: str) -> EngineBroke:
    return EngineBroke(f"the engine's whole reply has more than {what}", "upstream_too_large")
