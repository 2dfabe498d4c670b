"""`POST /v1/embeddings`: the reply holds no text, so the engine's is passed on as it is. Pure."""

from typing import Annotated, Any, Literal

import msgspec
from pydantic import Field

from app.api.completions import stand_in
from app.api.engine_request import AskedEngine
from app.api.reading import Read, present, read
from app.api.surface import ParsedRequest, PassThroughSurface
from app.errors.tree import EngineBroke
from gates.reply.chunks import UNREADABLE, read_counts, why_unreadable
from gates.reply.events import Usage

_FIELDS = ("input", "encoding_format", "dimensions", "user")
_Texts = Annotated[list[str], Field(min_length=1, max_length=2048, fail_fast=True)]
_Tokens = Annotated[list[int], Field(min_length=1, fail_fast=True)]
_json = msgspec.json.Encoder().encode


class EmbeddingRequest(Read):
    """`POST /v1/embeddings`, checked."""

    model: str
    input: (
        str
        | _Texts
        | _Tokens
        | Annotated[list[_Tokens], Field(min_length=1, max_length=2048, fail_fast=True)]
    )
    encoding_format: Literal["float", "base64"] | None = None
    dimensions: Annotated[int, Field(ge=1)] | None = None
    user: str | None = None


_MAX_USAGE_BYTES = 16 << 10
"""Largest `usage` of a reply: it is the only part that is decoded, in the event loop."""


class _Reply(msgspec.Struct):
    """The required fields, kept as bytes: a reply of 16 MiB could hold five million lists."""

    data: msgspec.Raw
    usage: msgspec.Raw = msgspec.Raw(b"null")


_decode = msgspec.json.Decoder(_Reply).decode
_decode_usage = msgspec.json.Decoder(
    dict[str, Any] | None, float_hook=float
).decode  # `gates.reply.chunks` says why


def _bounded(usage: msgspec.Raw) -> msgspec.Raw:
    """Raises EngineBroke."""
    if len(usage) > _MAX_USAGE_BYTES:
        raise EngineBroke(
            f"the engine's usage is too large: over {_MAX_USAGE_BYTES} bytes", "upstream_too_large"
        )
    return usage


class Embeddings(PassThroughSurface):
    """The surface of vectors."""

    path = engine_path = "/v1/embeddings"
    id_prefix = ""
    request = EmbeddingRequest

    def parse(self, raw: bytes, max_messages: int) -> ParsedRequest:
        asked = read(EmbeddingRequest, raw)
        body = present({name: getattr(asked, name) for name in _FIELDS})
        return ParsedRequest(stand_in(asked.model), body, tuple(asked.extra))

    def engine_body(self, asked: ParsedRequest, engine: AskedEngine) -> bytes:
        """Allowed fields only."""
        return _json({**asked.body, "model": engine.served_name})

    def hand_on(self, raw: bytes, public_name: str) -> tuple[bytes, Usage | None]:
        """The engine's reply under the name that the caller knows. Raises EngineBroke."""
        try:
            reply = _decode(raw)
            bytes(reply.data).decode()  # it is passed on, so it must be UTF-8
            usage = _decode_usage(_bounded(reply.usage))
        except UNREADABLE as error:
            message = f"the engine sent no embeddings: {why_unreadable(error)}"
            raise EngineBroke(message, "upstream_malformed") from None
        counts = None if usage is None else read_counts(usage)
        body = {"object": "list", "data": reply.data, "model": public_name, "usage": counts}
        return _json(body), None if counts is None else Usage(counts)
