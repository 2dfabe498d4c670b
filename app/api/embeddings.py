"""`POST /v1/embeddings`: the reply holds no text, so the engine's is passed on whole, and no request streams. Pure."""

from typing import Annotated, Literal

import msgspec
from pydantic import Field

from app.api.completions import Prompt, Tokens, stand_in
from app.api.engine_request import AskedEngine
from app.api.reading import Part, checked, json_object, present
from app.api.surface import ParsedRequest, Surface
from app.errors.tree import EngineBroke
from gates.contracts.dialect import Dialect
from gates.reply.chunks import MAX_COUNT, UNREADABLE, why_unreadable
from gates.reply.events import Usage

_Several = Annotated[list[Prompt], Field(min_length=1, max_length=2048, fail_fast=True)]


class EmbeddingRequest(Part):
    """`POST /v1/embeddings`, checked."""

    model: str
    input: str | _Several[str] | Tokens | _Several[Tokens]
    encoding_format: Literal["float", "base64"] | None = None
    dimensions: Annotated[int, Field(ge=1)] | None = None
    user: str | None = None


class _Counts(msgspec.Struct, omit_defaults=True):
    prompt_tokens: Annotated[int, msgspec.Meta(ge=0, le=MAX_COUNT)] | None = None
    total_tokens: Annotated[int, msgspec.Meta(ge=0, le=MAX_COUNT)] | None = None


class _Reply(msgspec.Struct):
    """The vectors are kept as bytes: a reply of 16 MiB could hold five million lists."""

    data: msgspec.Raw
    usage: _Counts | None = None


class Embeddings(Surface):
    path = engine_path = "/v1/embeddings"
    is_chat = False
    id_prefix = ""
    request = EmbeddingRequest

    def parse(self, raw: bytes, max_messages: int) -> ParsedRequest:
        asked = checked(EmbeddingRequest, json_object(raw))
        body = present({name: getattr(asked, name) for name in EmbeddingRequest.model_fields})
        return ParsedRequest(stand_in(asked.model), body, tuple(asked.extra))

    def unknown(self, names: set[str], dialect: Dialect) -> set[str]:
        return names - EmbeddingRequest.model_fields.keys()

    def engine_body(self, asked: ParsedRequest, engine: AskedEngine) -> bytes:
        return msgspec.json.encode({**asked.body, "model": engine.served_name})

    def hand_on(self, raw: bytes, public_name: str) -> tuple[bytes, Usage | None]:
        """The engine's reply under the name that the caller knows, and its counts. Raises EngineBroke."""
        try:
            reply = msgspec.json.decode(raw, type=_Reply)
            bytes(reply.data).decode()  # it is passed on, so it must be UTF-8
        except UNREADABLE as error:
            why = f"the engine sent no embeddings: {why_unreadable(error)}"
            raise EngineBroke(why, "upstream_malformed") from None
        body = {"object": "list", "data": reply.data, "model": public_name, "usage": reply.usage}
        usage = None if reply.usage is None else Usage(msgspec.to_builtins(reply.usage))
        return msgspec.json.encode(body), usage
