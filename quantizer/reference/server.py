"""The reference engine: transformers' own OpenAI server and continuous batching, over the model of an NVFP4 folder.

Only the model and its name are ours; requests, templates, batching and streaming are transformers'. Fields of a request
that its server refuses because it does not implement them are removed, since callers of an engine send them to all.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, MutableMapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from quantizer.core.errors import UnavailableError
from quantizer.reference.model import numerics, reference_model

LINE: Final = "manners-reference computes with "
"""Begins the line on stderr that says what computes. `deploy.engine.numerics` reads it."""
MAX_BODY: Final = 8 * 2**20

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
        from transformers.cli.serving import chat_completion, model_manager, server
    except ImportError as error:
        raise UnavailableError(
            f"transformers' server is not installed: {error}; pip install 'transformers[serving]'"
        ) from None
    tell(computes(served))
    manager, build = model_manager.ModelManager, server.build_server
    refused = frozenset(chat_completion.UNUSED_CHAT_COMPLETION_FIELDS)
    parts: list[tuple[Any, str, Any]] = [
        (model_manager, "ModelManager", _manager(manager, served)),
        (server, "build_server", lambda *args, **kwargs: _without_fields(build(*args, **kwargs), refused)),
    ]
    for module, name, part in parts:  # where `Serve` looks them up
        setattr(module, name, part)
    start: Callable[..., object] = Serve
    start(served.name, continuous_batching=served.batching, reasoning="off", host=served.host, port=served.port,
          device=served.device, log_level="warning")  # fmt: skip


def computes(served: Served) -> str:
    """The line of an engine's log from which a gate's report has its numerics."""
    found = numerics(weight_only=served.weight_only, device=served.device)
    return LINE + " ".join(f"{part}={value}" for part, value in found.items())


def _manager(theirs: type[Any], served: Served) -> type[Any]:
    """transformers' manager of models, which has this one model from the start."""

    class OneModel(theirs):  # type: ignore[misc]  # its base is only known at run time
        def load_model_and_processor(self, *_: Any, **__: Any) -> tuple[Any, Any]:
            if not hasattr(self, "held"):
                from transformers import AutoTokenizer, GenerationConfig

                model: Any = reference_model(served.folder, served.device, weight_only=served.weight_only)
                if (served.folder / "generation_config.json").exists():
                    model.generation_config = GenerationConfig.from_pretrained(served.folder)
                self.held = model, AutoTokenizer.from_pretrained(served.folder, local_files_only=True)
            return self.held  # type: ignore[no-any-return]

        def get_gen_models(self, *_: Any) -> list[dict[str, Any]]:
            return [{"id": served.name, "object": "model", "created": 0, "owned_by": "manners"}]

    return OneModel


def _without_fields(app: Any, refused: frozenset[str]) -> Any:
    """The server, with a layer before it that removes fields of chats which it would refuse."""

    async def filtered(scope: Any, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["path"] == "/v1/chat/completions":
            receive = _replayed(without(await _whole(receive), refused), receive)
        await app(scope, receive, send)

    return filtered


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
    """A request without some fields; what is no JSON object stays as it is."""
    try:
        asked = json.loads(body)
    except ValueError:
        return body
    if not isinstance(asked, dict):
        return body
    return json.dumps({key: value for key, value in asked.items() if key not in refused}).encode()
