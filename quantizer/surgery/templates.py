"""Reduce a folder that servers load as a vision-language model to one chat template.

With named templates (files in `additional_chat_templates/`, or a list in tokenizer_config.json), transformers returns a dict. For a
text model vLLM selects "default" from it; for a vision-language class it takes the dict for the template, and answers every chat
with 400 and "unhashable type: 'dict'" (vLLM 0.24.0, vllm/renderers/hf.py, resolve_chat_template_kwargs).
"""

from dataclasses import replace
from pathlib import PurePosixPath
from typing import Any, Final

from quantizer.surgery.checkpoint import TOKENIZER_CONFIG, ModelCheckpoint
from quantizer.surgery.operation import OperationResult
from quantizer.surgery.server import Server
from quantizer.surgery.wrap import WRAPPED

OPERATION: Final = "templates"
FILE: Final = "chat_template.jinja"
NAMED: Final = "additional_chat_templates"
DEFAULT: Final = "default"
ERROR: Final = "unhashable type: 'dict'"


def templates(checkpoint: ModelCheckpoint, server: Server) -> tuple[OperationResult, ModelCheckpoint]:
    """Keep only the default template if vLLM would fail on the others."""
    files = [name for name in checkpoint.others if _is_named(name)]
    held = checkpoint.documents.get(TOKENIZER_CONFIG, {}).get("chat_template")
    listed = _listed(held)
    names = [*(PurePosixPath(name).stem for name in files), *(name for name in listed if name != DEFAULT)]
    if not files and not isinstance(held, list):
        return OperationResult(OPERATION, "fine", "no template has a name"), checkpoint
    if checkpoint.config["model_type"] != WRAPPED or server.version is None:
        return OperationResult(
            OPERATION, "fine", f"of a text model the default is taken; named: {_all(names)}"
        ), checkpoint
    plain = FILE in checkpoint.others
    if not plain and not isinstance(held, str) and DEFAULT not in listed:
        return OperationResult(
            OPERATION, "refused", f"none of the templates {_all(names)} is the default one; name one {FILE}"
        ), checkpoint
    kept = tuple(name for name in checkpoint.others if name not in files)
    after, changes = replace(checkpoint, others=kept), [f"{name}: left out" for name in files]
    if isinstance(held, list):
        after = after.with_document(
            TOKENIZER_CONFIG, _plain(checkpoint.documents[TOKENIZER_CONFIG], listed, plain)
        )
        changes.append(f"{TOKENIZER_CONFIG}: of the templates {_all(listed)} only the default stays")
    why = f"{server.name} answers every chat with 400, {ERROR}, where templates have names: {_all(names)}"
    return OperationResult(OPERATION, "needed", why, tuple(changes)), after


def _is_named(name: str) -> bool:
    path = PurePosixPath(name)
    return path.parts[0] == NAMED and path.suffix == ".jinja"


def _listed(held: Any) -> dict[str, str]:
    """The templates of a list in tokenizer_config.json, by name."""
    parts = held if isinstance(held, list) else []
    return {str(part.get("name")): str(part.get("template")) for part in parts if isinstance(part, dict)}


def _plain(config: Any, listed: dict[str, str], elsewhere: bool) -> dict[str, Any]:
    """tokenizer_config.json with the default template as a string, or without any if a file holds it, which takes
    precedence."""
    after = {key: value for key, value in config.items() if key != "chat_template"}
    return after if elsewhere else {**after, "chat_template": listed[DEFAULT]}


def _all(names: Any) -> str:
    return ", ".join(names) or DEFAULT
