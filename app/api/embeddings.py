"""`POST /v1/embeddings`: the reply holds no text, so the engine's is passed on whole, and no request streams. Pure."""

from typing import Annotated, Any, Literal

import msgspec
from pydantic import Field

from app.api.completions import Tokens, stand_in
from app.api.engine_request import AskedEngine
from app.api.reading import Part, checked, json_object, present
from app.api.surface import ParsedRequest, Surface
from app.errors.tree import EngineBroke
from gates.contracts.dialect import Dialect
from gates.reply.chunks import UNREADABLE, read_counts, why_unreadable
from gates.reply.events import Usage

_Texts = Annotated[list[str], Field(min_length=1, max_length=2048, fail_fast=True)]
_Many = Annotated[list[Tokens], Field(min_length=1, max_length=2048, fail_fast=True)]
_MAX_USAGE_BYTES = 16 << 10
"""Largest `usage` of a reply: it is the only part that is decoded, in the event loop."""
# `gates.reply.chunks` says why there is a hook.
_decode_usage = msgspec.json.Decoder(dict[str, Any] | None, float_hook=float).decode


class EmbeddingRequest(Part):
    """`POST /v1/embeddings`, checked."""

    model: str
    input: str | _Texts | Tokens | _Many
    encoding_format: Literal["float", "base64"] | None = None
    dimensions: Annotated[int, Field(ge=1)] | None = None
    user: str | None = None


class _Reply(msgspec.Struct):
    """The required fields, kept as bytes: a reply of 16 MiB could hold five million lists."""

    data: msgspec.Raw
    usage: msgspec.Raw = msgspec.Raw(b"null")


class Embeddings(Surface):
    """The surface of vectors."""

    path = engine_path = "/v1/embeddings"
    is_chat = False
    id_prefix = ""
    request = EmbeddingRequest

    def parse(self, raw: bytes, max_messages: int) -> ParsedRequest:
        asked = checked(EmbeddingRequest, json_object(raw))
        body = present({name: getattr(asked, name) for name in EmbeddingRequest.model_fields})
        return ParsedRequest(stand_in(asked.model), body, tuple(asked.extra))

    def ignored(self, asked: ParsedRequest, dialect: Dialect) -> list[str]:
        return sorted(asked.ignored)

    def engine_body(self, asked: ParsedRequest, engine: AskedEngine) -> bytes:
        """Allowed fields only."""
        return msgspec.json.encode({**asked.body, "model": engine.served_name})

    def hand_on(self, raw: bytes, public_name: str) -> tuple[bytes, Usage | None]:
        """The engine's reply under the name that the caller knows, and its counts. Raises EngineBroke."""
        try:
            reply = msgspec.json.decode(raw, type=_Reply)
            bytes(reply.data).decode()  # it is passed on, so it must be UTF-8
            if len(reply.usage) > _MAX_USAGE_BYTES:
                message = f"the engine's usage is too large: over {_MAX_USAGE_BYTES} bytes"
                raise EngineBroke(message, "upstream_too_large")
            usage = _decode_usage(reply.usage)
            counts = None if usage is None else read_counts(usage)
        except UNREADABLE as error:
            why = f"the engine sent no embeddings: {why_unreadable(error)}"
            raise EngineBroke(why, "upstream_malformed") from None
        body = {"object": "list", "data": reply.data, "model": public_name, "usage": counts}
        return msgspec.json.encode(body), None if counts is None else Usage(counts)
