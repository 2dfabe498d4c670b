"""The names of a Qwen3.5 text model's weights, and the configuration that belongs to them.

A text model is `qwen3_5_text` with `model.layers…`; the vision-language class is `qwen3_5` with `model.language_model.layers…`.
ModelOpt's export has the names of one and the configuration of the other, which no server loads, so both are corrected separately.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from quantizer.surgery.checkpoint import CONFIG, PREPROCESSOR, Document, ModelCheckpoint
from quantizer.surgery.operation import OperationResult, Server, fine, needed, refused
from quantizer.verify.scheme import SECTIONS

OPERATION: Final = "names"
WRAPPED: Final = "qwen3_5"
TEXT: Final = "qwen3_5_text"
CLASSES: Final = {WRAPPED: "Qwen3_5ForConditionalGeneration", TEXT: "Qwen3_5ForCausalLM"}
BODIES: Final = ("model.language_model.", "language_model.model.", "model.")
"""Prefixes of the text model in a checkpoint, longer ones first."""
HEAD: Final = "language_model.lm_head"
VISION: Final = ("model.visual", "visual")
SHARED: Final = ("tie_word_embeddings", "dtype", "torch_dtype", "transformers_version", "quantization_config")
"""Fields of the whole model; with two nested configurations, they are in the outer one."""
STUB: Final[Mapping[str, Any]] = {
    "processor_class": "Qwen3VLProcessor",
    "image_processor_type": "Qwen2VLImageProcessorFast",
    "size": {"longest_edge": 16777216, "shortest_edge": 65536},
    "patch_size": 16,
    "temporal_patch_size": 2,
    "merge_size": 2,
    "image_mean": [0.5, 0.5, 0.5],
    "image_std": [0.5, 0.5, 0.5],
}
"""The image processor of Qwen3.5. Servers read it at start even if they never get an image."""


def names(checkpoint: ModelCheckpoint, server: Server) -> tuple[OperationResult, ModelCheckpoint]:
    """Bring configuration and names to one layout: the one that the server needs, else that of the configuration."""
    kind = checkpoint.config["model_type"]
    if kind not in CLASSES:
        return fine(OPERATION, f"{kind} has one layout"), checkpoint
    vision = [name for name in checkpoint.parts if name.startswith(tuple(f"{part}." for part in VISION))]
    wanted = WRAPPED if server.wraps else TEXT if server.version is None else kind
    if wanted == TEXT and vision:
        return refused(
            OPERATION, f"{vision[0]}: the folder holds a vision tower, which a text model loses"
        ), checkpoint
    body = "model.language_model." if wanted == WRAPPED else "model."
    renamed = {name: rename(name, body) for name in checkpoint.parts}
    twice = [name for name, times in Counter(renamed.values()).items() if times > 1]
    if twice:
        return refused(OPERATION, f"two weights would be called {min(twice)}"), checkpoint
    after = _rename_all(checkpoint, renamed, body)
    changes = tuple(_rename_summary(renamed))
    if kind != wanted:
        after = after.with_document(CONFIG, wrap(after.config) if wanted == WRAPPED else unwrap(after.config))
        changes = (f"config.json: {kind} becomes {wanted}, {CLASSES[wanted]}", *changes)
    if after == checkpoint:
        return fine(OPERATION, f"{kind}, with the names that go with it"), checkpoint
    return needed(OPERATION, _why(server, kind, wanted), changes or ("names in the exclusions",)), after


def _why(server: Server, kind: str, wanted: str) -> str:
    if kind == wanted:
        return f"the names of weights or exclusions are not those of {kind}"
    return f"{server.name} loads {wanted}, not {kind}"


def _rename_summary(renamed: Mapping[str, str]) -> list[str]:
    moved = [(old, new) for old, new in renamed.items() if old != new]
    if not moved:
        return []
    return [f"{len(moved)} weights renamed, such as {moved[0][0]} to {moved[0][1]}"]


def rename(name: str, body: str) -> str:
    """A name or pattern with the text model below `body`; names of other parts are unchanged."""
    if name.startswith(tuple(f"{part}." for part in VISION)) or name in VISION:
        return name
    if name.startswith(HEAD):
        return name.removeprefix("language_model.")
    for prefix in BODIES:
        if name.startswith(prefix):
            return body + name.removeprefix(prefix)
    return name


def _rename_all(checkpoint: ModelCheckpoint, renamed: Mapping[str, str], body: str) -> ModelCheckpoint:
    parts = {renamed[name]: part for name, part in checkpoint.parts.items()}
    documents = dict(checkpoint.documents)
    for section in SECTIONS:
        document = documents.get(section.file, {})
        held = document.get(section.key)
        if isinstance(held, dict):
            documents[section.file] = {**document, section.key: _rename_section(held, section.exclude, body)}
    return replace(checkpoint, parts=parts, documents=documents)


def _rename_section(section: Document, exclude: str, body: str) -> dict[str, Any]:
    after = dict(section)
    if isinstance(after.get(exclude), list):
        after[exclude] = [rename(str(pattern), body) for pattern in after[exclude]]
    return after


def wrap(config: Document) -> dict[str, Any]:
    """The configuration of the vision-language class around a text model's configuration."""
    inner = {key: value for key, value in config.items() if key not in ("architectures", *SHARED)}
    outer = {key: config[key] for key in SHARED if key in config}
    # By default the class does not tie embeddings; transformers reads the setting at both levels.
    for key in ("tie_word_embeddings", "dtype", "torch_dtype"):
        if key in config:
            inner[key] = config[key]
    vision = {"out_hidden_size": config["hidden_size"]} if "hidden_size" in config else {}
    return {
        "architectures": [CLASSES[WRAPPED]],
        "model_type": WRAPPED,
        "text_config": {**inner, "model_type": TEXT},
        "vision_config": vision,
        **outer,
    }


def unwrap(config: Document) -> dict[str, Any]:
    """The text model's configuration, extracted from the vision-language one."""
    inner = dict(config["text_config"])
    outer = {key: config[key] for key in SHARED if key in config}
    return {**inner, **outer, "architectures": [CLASSES[TEXT]], "model_type": TEXT}


def preprocessor(checkpoint: ModelCheckpoint, server: Server) -> tuple[OperationResult, ModelCheckpoint]:
    """Add the file that a wrapped model's class reads at start; remove the stub from an unwrapped model."""
    operation, held = "preprocessor", checkpoint.documents.get(PREPROCESSOR)
    if checkpoint.config["model_type"] == WRAPPED and server.wraps and not held:
        why = f"{server.name} reads {PREPROCESSOR} when it starts the vision-language class"
        return needed(operation, why, (f"{PREPROCESSOR}: a stub",)), checkpoint.with_document(
            PREPROCESSOR, STUB
        )
    if checkpoint.config["model_type"] == TEXT and held == STUB:
        why = "a text model has no images to prepare"
        return needed(operation, why, (f"{PREPROCESSOR}: removed",)), checkpoint.with_document(
            PREPROCESSOR, None
        )
    return fine(operation, f"{PREPROCESSOR} is there" if held else "not needed"), checkpoint
