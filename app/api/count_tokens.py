"""`POST /v1/messages/count_tokens`, Anthropic's: how many tokens a Messages request would give the engine. Pure.

The engine counts, with its own template: llama-server and vLLM each have a path for it, others have none.
"""

from typing import Annotated

import msgspec

from app.api.engine_request import AskedEngine, upstream_body
from app.api.messages_request import MessagesRequest
from app.api.reading import MAX_INT, TokenLimit
from app.api.surface import ParsedRequest, PassThroughSurface
from app.errors.tree import ANTHROPIC_PATH, EngineRefused
from deploy.engine.dialects import DIALECTS
from gates.contracts.dialect import Dialect
from gates.reply.events import Usage

_COUNTED = frozenset({"model", "messages", "tools", "chat_template_kwargs"})
"""The fields of a chat that become tokens."""


class CountTokensRequest(MessagesRequest):
    """`POST /v1/messages/count_tokens`, checked: a Messages request, which need not say how long the reply may be."""

    max_tokens: TokenLimit | None = None  # type: ignore[assignment]  # wider, on purpose


_Count = Annotated[int, msgspec.Meta(ge=0, le=MAX_INT)]


class _Reply(msgspec.Struct):
    """llama-server says `input_tokens`, vLLM and SGLang `count`."""

    input_tokens: _Count | None = None
    count: _Count | None = None


class CountTokens(PassThroughSurface):
    """The surface that counts."""

    path = f"{ANTHROPIC_PATH}/count_tokens"
    engine_path = ""  # each dialect has its own: `path_on`
    request = CountTokensRequest
    chats = True
    reply = _Reply

    def path_on(self, dialect: Dialect) -> str:
        """Where an engine counts. Raises EngineRefused: it does not."""
        path = DIALECTS[dialect].counts_tokens
        if path is None:
            raise EngineRefused("this model's engine counts no tokens", "unsupported_by_engine")
        return path

    def parse(self, raw: bytes, max_messages: int) -> ParsedRequest:
        """The chat completion whose prompt is counted."""
        return CountTokensRequest.parsed(raw, max_messages)

    def engine_body(self, asked: ParsedRequest, engine: AskedEngine) -> bytes:
        """The chat as the engine would get it, without the fields that are not part of the prompt."""
        chat = upstream_body(asked.chat, asked.body, engine)
        sent = msgspec.json.decode(chat, type=dict[str, msgspec.Raw])
        return msgspec.json.encode({name: value for name, value in sent.items() if name in _COUNTED})

    def translated(self, reply: _Reply, public_name: str) -> tuple[bytes, Usage | None]:
        """The count in Anthropic's words."""
        found = reply.count if reply.input_tokens is None else reply.input_tokens
        if found is None:
            raise msgspec.ValidationError("neither input_tokens nor count")
        return msgspec.json.encode({"input_tokens": found}), None
