"""`POST /v1/messages/count_tokens`, Anthropic's: how many tokens a Messages request would give the engine. Pure.

The engine counts, with its own template: llama-server and vLLM each have a path for it, others have none.
"""

import msgspec

from app.api.chat_request import MAX_INT, TokenLimit, check_chat, refuse_unserved
from app.api.engine_request import AskedEngine, upstream_body
from app.api.messages_request import MessagesRequest
from app.api.reading import read
from app.api.surface import ParsedRequest, PassThroughSurface
from app.api.unserved import MESSAGES
from app.errors.envelopes import ANTHROPIC_PATH
from app.errors.tree import EngineBroke, EngineRefused
from deploy.engine.dialects import DIALECTS
from gates.contracts.dialect import Dialect
from gates.reply.chunks import UNREADABLE, why_unreadable
from gates.reply.events import Usage

_COUNTED = frozenset({"model", "messages", "tools", "chat_template_kwargs"})
"""The fields of a chat that become tokens."""


class CountTokensRequest(MessagesRequest):
    """`POST /v1/messages/count_tokens`, checked: a Messages request, which need not say how long the reply may be."""

    max_tokens: TokenLimit | None = None  # type: ignore[assignment]  # wider, on purpose


class _Reply(msgspec.Struct):
    """llama-server says `input_tokens`, vLLM and SGLang `count`."""

    input_tokens: int | None = None
    count: int | None = None


class CountTokens(PassThroughSurface):
    """The surface that counts."""

    path = f"{ANTHROPIC_PATH}/count_tokens"
    engine_path = ""  # each dialect has its own: `path_on`
    id_prefix = ""
    request = CountTokensRequest
    chats = True

    def path_on(self, dialect: Dialect) -> str:
        """Where an engine counts. Raises EngineRefused: it does not."""
        path = DIALECTS[dialect].counts_tokens
        if path is None:
            raise EngineRefused("this model's engine counts no tokens", "unsupported_by_engine")
        return path

    def parse(self, raw: bytes, max_messages: int) -> ParsedRequest:
        """The chat completion whose prompt is counted."""
        asked = read(CountTokensRequest, raw, "messages", max_messages)
        refuse_unserved(asked.extra, MESSAGES)
        body = asked.chat_body()
        return ParsedRequest(check_chat(body, max_messages), body, asked.dropped)

    def engine_body(self, asked: ParsedRequest, engine: AskedEngine) -> bytes:
        """The chat as the engine would get it, without the fields that are not part of the prompt."""
        chat = upstream_body(asked.chat, asked.body, engine)
        sent = msgspec.json.decode(chat, type=dict[str, msgspec.Raw])
        return msgspec.json.encode({name: value for name, value in sent.items() if name in _COUNTED})

    def hand_on(self, raw: bytes, public_name: str) -> tuple[bytes, Usage | None]:
        """The count in Anthropic's words. Raises EngineBroke."""
        try:
            reply = msgspec.json.decode(raw, type=_Reply)
        except UNREADABLE as error:
            message = f"the engine sent no count: {why_unreadable(error)}"
            raise EngineBroke(message, "upstream_malformed") from None
        found = reply.count if reply.input_tokens is None else reply.input_tokens
        if found is None or not 0 <= found <= MAX_INT:
            raise EngineBroke("the engine sent no count", "upstream_malformed")
        return msgspec.json.encode({"input_tokens": found}), None
