"""Make a tokenizer loadable for transformers 4.

transformers 5 writes `tokenizer_class: TokenizersBackend` (or Qwen3.5's own), which transformers 4 does not have, and
`extra_special_tokens` as a list, on which version 4 fails. Both versions have PreTrainedTokenizerFast, which reads tokenizer.json
unchanged; Qwen2Tokenizer replaces the normalizer and the pre-tokenizer by Qwen2's, which cut combining marks otherwise than Qwen3.5's.
"""

from collections.abc import Mapping
from typing import Any, Final

from quantizer.surgery.checkpoint import CONFIG, TOKENIZER, TOKENIZER_CONFIG, Document, ModelCheckpoint
from quantizer.surgery.operation import OperationResult, Server, fine, needed, refused

OPERATION: Final = "tokenizer"
NEW: Final = ("TokenizersBackend", "TokenizersBackendFast", "Qwen3_5Tokenizer", "Qwen3_5TokenizerFast")
PLAIN: Final = "PreTrainedTokenizerFast"


def tokenizer(checkpoint: ModelCheckpoint, server: Server) -> tuple[OperationResult, ModelCheckpoint]:
    """Set a tokenizer class that the server's transformers has, and lists in the form that it reads."""
    config, document = checkpoint.documents.get(TOKENIZER_CONFIG), checkpoint.documents.get(TOKENIZER)
    if config is None:
        return fine(OPERATION, f"there is no {TOKENIZER_CONFIG}"), checkpoint
    if not server.transformers_4:
        return fine(OPERATION, f"{server.name} reads {config.get('tokenizer_class')}"), checkpoint
    after, changes = dict(config), []
    if config.get("tokenizer_class") in NEW:
        apart = "there is no tokenizer.json" if document is None else _other_ids(document, config)
        if apart:
            return refused(OPERATION, f"{PLAIN} would cut otherwise: {apart}"), checkpoint
        after["tokenizer_class"] = PLAIN
        changes.append(f"tokenizer_class: {config['tokenizer_class']} becomes {PLAIN}")
    if isinstance(config.get("extra_special_tokens"), list):
        listed = after.pop("extra_special_tokens")
        after["additional_special_tokens"] = [*after.get("additional_special_tokens", []), *listed]
        changes.append("extra_special_tokens, a list, becomes additional_special_tokens")
    if not changes:
        return fine(OPERATION, f"{config.get('tokenizer_class')} is known to transformers 4"), checkpoint
    step = needed(OPERATION, f"{server.name} comes with transformers 4", tuple(changes))
    return step, checkpoint.with_document(TOKENIZER_CONFIG, after)


def _other_ids(document: Document, config: Document) -> str:
    """Added tokens to which the two files give different ids: transformers 4 would add them again."""
    held = {token["content"]: token["id"] for token in document.get("added_tokens", [])}
    held = {**document.get("model", {}).get("vocab", {}), **held}
    for number, token in (config.get("added_tokens_decoder") or {}).items():
        content = token.get("content") if isinstance(token, Mapping) else token
        if held.get(content) != int(number):
            return f"{content!r} is {number} in {TOKENIZER_CONFIG} and {held.get(content)} in {TOKENIZER}"
    return ""


def rope(checkpoint: ModelCheckpoint, server: Server) -> tuple[OperationResult, ModelCheckpoint]:
    """Set the base of the rotary embedding where transformers 4 reads it. Without it, version 4 uses 10,000, and
    the model generates nonsense without an error."""
    config = checkpoint.config
    held = config.get("rope_parameters")
    if not server.transformers_4 or not isinstance(held, dict):
        return fine("rope", "set where the server reads it"), checkpoint
    added: dict[str, Any] = {}
    if "rope_theta" in held and config.get("rope_theta") != held["rope_theta"]:
        added["rope_theta"] = held["rope_theta"]
    scaling = {key: value for key, value in held.items() if key != "rope_theta"}
    if scaling.get("rope_type", "default") != "default" and config.get("rope_scaling") != scaling:
        added["rope_scaling"] = scaling
    if not added:
        return fine("rope", "set where the server reads it"), checkpoint
    changes = tuple(f"config.json: {key} {value}" for key, value in added.items())
    step = needed("rope", f"{server.name} does not look into rope_parameters", changes)
    return step, checkpoint.with_document(CONFIG, {**config, **added})
