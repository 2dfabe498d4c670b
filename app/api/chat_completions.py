"""`POST /v1/chat/completions`, OpenAI's: the format that the stream core itself works in. Pure."""

from app.api.chat_request import ChatRequest, parse_chat
from app.api.surface import OverChat, ParsedRequest
from app.stream.encode import MessageCollector, StreamEncoder


class ChatCompletions(OverChat):
    """The first surface."""

    path = "/v1/chat/completions"
    id_prefix = "chatcmpl-"
    request = ChatRequest
    encoder, collector = StreamEncoder, MessageCollector

    def parse(self, raw: bytes, max_messages: int) -> ParsedRequest:
        chat, body = parse_chat(raw, max_messages)
        return ParsedRequest(chat, body, logprobs=bool(chat.logprobs), count=chat.n or 1)
