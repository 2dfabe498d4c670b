"""One chat template for a folder that servers take for a vision-language model. Pure.

A folder may hold templates with names: files in `additional_chat_templates/`, or a list in tokenizer_config.json.
Transformers then gives a dict of templates. vLLM asks a text model's tokenizer, which chooses "default" out of it; of
a vision-language class it asks the processor, takes the dict for the template, and answers every chat with 400 and
"unhashable type: 'dict'" (seen with vLLM 0.24.0; vllm/renderers/hf.py, resolve_chat_template_kwargs). It says ready all
the same: its warm-up fails with the same line as a warning only.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import PurePosixPath
from typing import Any, Final

from quantizer.surgery.checkpoint import TOKENIZER_CONFIG, Patient
from quantizer.surgery.operation import Step
from quantizer.surgery.server import Server
from quantizer.surgery.wrap import WRAPPED

OPERATION: Final = "templates"
FILE: Final = "chat_template.jinja"
NAMED: Final = "additional_chat_templates"
DEFAULT: Final = "default"
ERROR: Final = "unhashable type: 'dict'"


def templates(patient: Patient, server: Server) -> tuple[Step, Patient]:
    """Keep the default template only, where vLLM would stumble over the others."""
    files = [name for name in patient.others if _is_named(name)]
    held = patient.documents.get(TOKENIZER_CONFIG, {}).get("chat_template")
    listed = _listed(held)
    names = [*(PurePosixPath(name).stem for name in files), *(name for name in listed if name != DEFAULT)]
    if not files and not isinstance(held, list):
        return Step(OPERATION, "fine", "no template has a name"), patient
    if patient.config["model_type"] != WRAPPED or server.version is None:
        return Step(OPERATION, "fine", f"of a text model the default is taken; named: {_all(names)}"), patient
    plain = FILE in patient.others
    if not plain and not isinstance(held, str) and DEFAULT not in listed:
        return Step(
            OPERATION, "refused", f"none of the templates {_all(names)} is the default one; name one {FILE}"
        ), patient
    kept = tuple(name for name in patient.others if name not in files)
    after, changes = replace(patient, others=kept), [f"{name}: left out" for name in files]
    if isinstance(held, list):
        after = after.with_document(
            TOKENIZER_CONFIG, _plain(patient.documents[TOKENIZER_CONFIG], listed, plain)
        )
        changes.append(f"{TOKENIZER_CONFIG}: of the templates {_all(listed)} only the default stays")
    why = f"{server.name} answers every chat with 400, {ERROR}, where templates have names: {_all(names)}"
    return Step(OPERATION, "needed", why, tuple(changes)), after


def _is_named(name: str) -> bool:
    path = PurePosixPath(name)
    return path.parts[0] == NAMED and path.suffix == ".jinja"


def _listed(held: Any) -> dict[str, str]:
    """The templates of a list in tokenizer_config.json, by name."""
    parts = held if isinstance(held, list) else []
    return {str(part.get("name")): str(part.get("template")) for part in parts if isinstance(part, dict)}


def _plain(config: Any, listed: dict[str, str], elsewhere: bool) -> dict[str, Any]:
    """tokenizer_config.json with the default template as a text; without any where a file holds it, which goes first."""
    after = {key: value for key, value in config.items() if key != "chat_template"}
    return after if elsewhere else {**after, "chat_template": listed[DEFAULT]}


def _all(names: Any) -> str:
    return ", ".join(names) or DEFAULT
