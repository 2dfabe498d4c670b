"""The names of a Qwen3.5 text model's weights, and the configuration that goes with them. Pure.

A text model is `qwen3_5_text` with `model.layers…`. Servers that only know the vision-language class want `qwen3_5`
with `model.language_model.layers…` around the same weights, and drop the vision part by `--language-model-only`.
ModelOpt's export of a model that was built from a config has the names of one and the configuration of the other,
which no server loads; so names and configuration are looked at apart, each made what it should be.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from quantizer.surgery.checkpoint import CONFIG, PREPROCESSOR, Document, Patient
from quantizer.surgery.operation import Step
from quantizer.surgery.server import Server
from quantizer.verify.scheme import SECTIONS

OPERATION: Final = "names"
WRAPPED: Final = "qwen3_5"
TEXT: Final = "qwen3_5_text"
CLASSES: Final = {WRAPPED: "Qwen3_5ForConditionalGeneration", TEXT: "Qwen3_5ForCausalLM"}
BODIES: Final = ("model.language_model.", "language_model.model.", "model.")
"""Where a checkpoint may keep the text model; the longer first."""
HEAD: Final = "language_model.lm_head"
VISION: Final = ("model.visual", "visual")
SHARED: Final = ("tie_word_embeddings", "dtype", "torch_dtype", "transformers_version", "quantization_config")
"""Fields of the whole model: of the outer configuration, where there are two."""
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
"""The image processor of Qwen3.5: read at start by servers that are never shown an image."""


def names(patient: Patient, server: Server) -> tuple[Step, Patient]:
    """Make configuration and names those of one layout: the one that the server wants, else the configuration's."""
    kind = patient.config["model_type"]
    if kind not in CLASSES:
        return Step(OPERATION, "fine", f"{kind} has one layout"), patient
    vision = [name for name in patient.parts if name.startswith(tuple(f"{part}." for part in VISION))]
    wanted = WRAPPED if server.wraps else TEXT if server.unwraps else kind
    if wanted == TEXT and vision:
        return Step(
            OPERATION, "refused", f"{vision[0]}: the folder holds a vision tower, which a text model loses"
        ), patient
    body = "model.language_model." if wanted == WRAPPED else "model."
    renamed = {name: rename(name, body) for name in patient.parts}
    twice = [name for name, times in Counter(renamed.values()).items() if times > 1]
    if twice:
        return Step(OPERATION, "refused", f"two weights would be called {min(twice)}"), patient
    after = _rename_all(patient, renamed, body)
    changes = tuple(_told(renamed))
    if kind != wanted:
        after = after.with_document(CONFIG, wrap(after.config) if wanted == WRAPPED else unwrap(after.config))
        changes = (f"config.json: {kind} becomes {wanted}, {CLASSES[wanted]}", *changes)
    if after == patient:
        return Step(OPERATION, "fine", f"{kind}, with the names that go with it"), patient
    return Step(
        OPERATION, "needed", _why(server, kind, wanted), changes or ("names in the exclusions",)
    ), after


def _why(server: Server, kind: str, wanted: str) -> str:
    if kind == wanted:
        return f"the names of weights or exclusions are not those of {kind}"
    return f"{server.name} loads {wanted}, not {kind}"


def _told(renamed: Mapping[str, str]) -> list[str]:
    moved = [(old, new) for old, new in renamed.items() if old != new]
    if not moved:
        return []
    return [f"{len(moved)} weights renamed, such as {moved[0][0]} to {moved[0][1]}"]


def rename(name: str, body: str) -> str:
    """A weight's or a module's name, or a pattern, with the text model below `body`; others stay as they are."""
    if name.startswith(tuple(f"{part}." for part in VISION)) or name in VISION:
        return name
    if name.startswith(HEAD):
        return name.removeprefix("language_model.")
    for prefix in BODIES:
        if name.startswith(prefix):
            return body + name.removeprefix(prefix)
    return name


def _rename_all(patient: Patient, renamed: Mapping[str, str], body: str) -> Patient:
    parts = {renamed[name]: part for name, part in patient.parts.items()}
    documents = dict(patient.documents)
    for section in SECTIONS:
        document = documents.get(section.file, {})
        held = document.get(section.key)
        if isinstance(held, dict):
            documents[section.file] = {**document, section.key: _rename_section(held, section.exclude, body)}
    return replace(patient, parts=parts, documents=documents)


def _rename_section(section: Document, exclude: str, body: str) -> dict[str, Any]:
    after = dict(section)
    if isinstance(after.get(exclude), list):
        after[exclude] = [rename(str(pattern), body) for pattern in after[exclude]]
    if isinstance(after.get("quantized_layers"), dict):
        after["quantized_layers"] = {
            rename(name, body): value for name, value in after["quantized_layers"].items()
        }
    return after


def wrap(config: Document) -> dict[str, Any]:
    """The configuration of the vision-language class around a text model's."""
    inner = {key: value for key, value in config.items() if key not in ("architectures", *SHARED)}
    outer = {key: config[key] for key in SHARED if key in config}
    # The class's default for ties is "not tied"; transformers reads it at both levels.
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
    """The text model's own configuration out of the vision-language one."""
    inner = dict(config["text_config"])
    outer = {key: config[key] for key in SHARED if key in config}
    return {**inner, **outer, "architectures": [CLASSES[TEXT]], "model_type": TEXT}


def preprocessor(patient: Patient, server: Server) -> tuple[Step, Patient]:
    """Give a wrapped model the file that its class reads at start; take the stub from an unwrapped one."""
    operation, held = "preprocessor", patient.documents.get(PREPROCESSOR)
    if patient.config["model_type"] == WRAPPED and server.wraps and not held:
        why = f"{server.name} reads {PREPROCESSOR} when it starts the vision-language class"
        return Step(operation, "needed", why, (f"{PREPROCESSOR}: a stub",)), patient.with_document(
            PREPROCESSOR, STUB
        )
    if patient.config["model_type"] == TEXT and held == STUB:
        why = "a text model has no images to prepare"
        return Step(operation, "needed", why, (f"{PREPROCESSOR}: removed",)), patient.with_document(
            PREPROCESSOR, None
        )
    return Step(operation, "fine", f"{PREPROCESSOR} is there" if held else "not needed"), patient
