"""The reference engine: transformers' own OpenAI server and continuous batching, over the model of an NVFP4 folder.

Models with layers that its batching has no cache for go without it.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import torch

from quantizer.core.errors import UnavailableError
from quantizer.ptq.parity import reference_model

LINE: Final = "manners-reference computes with "
"""Begins the line on stderr that says what computes. `deploy.engine.dialects` reads it."""
PAGED: Final = frozenset({"full_attention", "sliding_attention"})
"""Kinds of layers that transformers' continuous batching has a cache for. For a model with another kind 5.23 answers
every request with 500; in 5.17 the first one ends its worker, and every answer is 503 from then on."""


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
        from transformers.cli.serving import chat_completion, model_manager, utils
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
    parts: list[tuple[Any, str, Any]] = [
        (model_manager, "ModelManager", _manager(model_manager.ModelManager, served.name, model, tokenizer)),
        (chat_completion, "build_response_parser", _of_reply_only(utils.build_response_parser)),
    ]
    for module, name, part in parts:  # where `Serve` looks them up
        setattr(module, name, part)
    start: Callable[..., object] = Serve
    start(served.name, continuous_batching=batching, reasoning="off", host=served.host, port=served.port,
          device=served.device, log_level="warning")  # fmt: skip


def computes(served: Served) -> str:
    """The line of an engine's log from which a gate's report has its numerics."""
    gpu = torch.cuda.get_device_name(served.device) if torch.device(served.device).type == "cuda" else "none"
    return f"{LINE}kernel=ReferenceNvFp4 scheme={'W4A16' if served.weight_only else 'W4A4'} kv_cache=bfloat16 gpu={gpu}"


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
