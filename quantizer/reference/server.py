"""The reference engine: transformers' own OpenAI server and continuous batching, over the model of an NVFP4 folder.

Only the model and its name are ours; requests, templates, batching and streaming are transformers'. Fields of a request
that its server refuses because it does not implement them are removed, since callers of an engine send them to all; and
what fails is said in the log and in the answer. Models with layers that its continuous batching has no cache for are
served without it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Awaitable, Callable, MutableMapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from quantizer.core.errors import UnavailableError
from quantizer.reference.model import numerics, reference_model

LINE: Final = "manners-reference computes with "
"""Begins the line on stderr that says what computes. `deploy.engine.numerics` reads it."""
MAX_BODY: Final = 8 * 2**20
PAGED: Final = frozenset({"full_attention", "sliding_attention"})
"""Kinds of layers that transformers' continuous batching has a cache for. For a model with another kind 5.23 answers
every request with 500; in 5.17 the first one ends its worker, and every answer is 503 from then on."""
_BROKEN_OFF: Final = re.compile(rb'data: \{"error": "(.*)"\}\n\n\Z', re.DOTALL)
"""The end of a stream that failed. transformers puts the message in as it is, so that its quotes make it no JSON."""

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    """What is served where. batching: many requests at once, by transformers' continuous batching."""

    folder: Path
    name: str
    host: str
    port: int
    device: str
    weight_only: bool
    batching: bool


def serve(served: Served, tell: Callable[[str], None]) -> None:
    """Serve until a signal ends it. Raises SourceError for a folder that cannot be served, UnavailableError without transformers' server."""
    try:
        from transformers.cli.serve import Serve
        from transformers.cli.serving import chat_completion, model_manager, server, utils
    except ImportError as error:
        raise UnavailableError(
            f"transformers' server is not installed: {error}; pip install 'transformers[serving]'"
        ) from None
    tell(computes(served))
    model, tokenizer = _load(served)
    batching = served.batching and not (kinds := not_batched(model.config))
    if served.batching and not batching:
        tell(
            f"transformers' continuous batching cannot serve {', '.join(kinds)}: requests are answered one after another"
        )
    manager, build = model_manager.ModelManager, server.build_server
    refused = frozenset(chat_completion.UNUSED_CHAT_COMPLETION_FIELDS)
    parts: list[tuple[Any, str, Any]] = [
        (model_manager, "ModelManager", _manager(manager, served.name, model, tokenizer)),
        (server, "build_server", lambda *args, **kwargs: fronted(build(*args, **kwargs), refused, tell)),
        (chat_completion, "build_response_parser", _of_reply_only(utils.build_response_parser)),
    ]
    for module, name, part in parts:  # where `Serve` looks them up
        setattr(module, name, part)
    start: Callable[..., object] = Serve
    start(served.name, continuous_batching=batching, reasoning="off", host=served.host, port=served.port,
          device=served.device, log_level="warning")  # fmt: skip


def computes(served: Served) -> str:
    """The line of an engine's log from which a gate's report has its numerics."""
    found = numerics(weight_only=served.weight_only, device=served.device)
    return LINE + " ".join(f"{part}={value}" for part, value in found.items())


def not_batched(config: Any) -> list[str]:
    """The kinds of a model's layers that transformers' continuous batching has no cache for."""
    kinds = getattr(config.get_text_config(), "layer_types", None) or ()
    return sorted(set(kinds) - PAGED)


def _load(served: Served) -> tuple[Any, Any]:
    """The model and its tokenizer."""
    from transformers import AutoTokenizer, GenerationConfig

    model: Any = reference_model(served.folder, served.device, weight_only=served.weight_only)
    if (served.folder / "generation_config.json").exists():
        model.generation_config = GenerationConfig.from_pretrained(served.folder)
    return model, AutoTokenizer.from_pretrained(served.folder, local_files_only=True)


def _manager(theirs: type[Any], name: str, model: Any, tokenizer: Any) -> type[Any]:
    """transformers' manager of models, which has this one model from the start."""

    class OneModel(theirs):  # type: ignore[misc]  # its base is only known at run time
        def load_model_and_processor(self, *_: Any, **__: Any) -> tuple[Any, Any]:
            return model, tokenizer

        def get_gen_models(self, *_: Any) -> list[dict[str, Any]]:
            return [{"id": name, "object": "model", "created": 0, "owned_by": "manners"}]

    return OneModel


def _of_reply_only(build: Callable[..., Any]) -> Callable[..., Any]:
    """Makes parsers of streams that keep the prompt's end (an empty thought) to themselves; transformers begins every
    stream with it, and no whole reply."""

    def built(*args: Any, **kwargs: Any) -> Any:
        parser = build(*args, **kwargs)
        if parser is not None:
            read, unread = parser._buffer[: parser._pos], parser._buffer[parser._pos :]
            parser.initial_events, parser._buffer = [], read + unread.lstrip()
        return parser

    return built


def fronted(app: Any, refused: frozenset[str], tell: Callable[[str], None]) -> Any:
    """The server behind a layer that removes fields of chats which it would refuse, and says in words what failed."""

    async def front(scope: Any, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or not scope["path"].startswith("/v1/"):
            await app(scope, receive, send)
            return
        if scope["path"] == "/v1/chat/completions":
            receive = _replayed(without(await _whole(receive), refused), receive)
        answer = _Answer(send, lambda text: tell(f"{scope['path']} failed: {text}"))
        try:
            await app(scope, receive, answer.send)
        except Exception as error:
            await answer.finish(f"{type(error).__name__}: {error}")
            raise
        await answer.finish()

    return front


class _Answer:
    """Passes an answer on. One that says that the server failed is kept until `finish`, to be said in OpenAI's form; the
    same holds for the last event of a stream that broke off."""

    def __init__(self, send: Send, tell: Callable[[str], None]) -> None:
        self._send, self._tell = send, tell
        self._status, self._body = 0, b""

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start" and message["status"] >= 500:
            self._status = message["status"]
        elif self._status:
            self._body += message.get("body", b"")
        elif found := _BROKEN_OFF.search(message.get("body", b"")):
            said = b"data: " + self._failure(found[1].decode(errors="replace"), 500) + b"\n\n"
            await self._send({**message, "body": message["body"][: found.start()] + said})
        else:
            await self._send(message)

    async def finish(self, error: str | None = None) -> None:
        """Send what was kept. error: what was raised."""
        if not self._status:
            if error:
                self._tell(error)
            return
        body = self._failure(error or _said(self._body), self._status)
        headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
        await self._send({"type": "http.response.start", "status": self._status, "headers": headers})
        await self._send({"type": "http.response.body", "body": body})

    def _failure(self, text: str, status: int) -> bytes:
        self._tell(text)
        return json.dumps({"error": {"message": text, "type": "server_error", "code": status}}).encode()


def _said(body: bytes) -> str:
    """What an answer gives as its error."""
    try:
        return str(json.loads(body)["error"])
    except (ValueError, TypeError, KeyError):
        return body.decode(errors="replace")


async def _whole(receive: Receive) -> bytes:
    body = b""
    while True:
        message = await receive()
        body += message.get("body", b"")
        if not message.get("more_body") or len(body) > MAX_BODY:
            return body


def _replayed(body: bytes, receive: Receive) -> Receive:
    sent = False

    async def replay() -> Message:
        nonlocal sent
        if sent:
            return await receive()  # the caller's leaving
        sent = True
        return {"type": "http.request", "body": body, "more_body": False}

    return replay


def without(body: bytes, refused: frozenset[str]) -> bytes:
    """A request without some fields, `max_completion_tokens` by its older name; what is no JSON object stays as it is."""
    try:
        asked = json.loads(body)
    except ValueError:
        return body
    if not isinstance(asked, dict):
        return body
    kept = {key: value for key, value in asked.items() if key not in refused}
    if (most := asked.get("max_completion_tokens")) is not None and "max_completion_tokens" in refused:
        kept["max_tokens"] = most  # transformers before 5.23
    return json.dumps(kept).encode()
