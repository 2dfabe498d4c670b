"""`POST /v1/chat/completions`, OpenAI's: the format that the stream core itself works in. Pure."""

from app.api.chat_request import ChatRequest, parse_chat
from app.api.surface import Collector, Encoder, OverChat, ParsedRequest
from app.stream.encode import MessageCollector, ReplyHead, StreamEncoder


class ChatCompletions(OverChat):
    """The first surface."""

    path = "/v1/chat/completions"
    id_prefix = "chatcmpl-"
    request = ChatRequest

    def parse(self, raw: bytes, max_messages: int) -> ParsedRequest:
        chat, body = parse_chat(raw, max_messages)
        return ParsedRequest(chat, body, logprobs=bool(chat.logprobs), count=chat.n or 1)

    def encoder(self, head: ReplyHead, asked: ParsedRequest) -> Encoder:
        """chat.completion.chunk frames."""
        return StreamEncoder(head)

    def collector(self, head: ReplyHead, asked: ParsedRequest) -> Collector:
        return MessageCollector(head)
