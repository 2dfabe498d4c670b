"""How a model writes its thoughts and calls, told by its chat template."""

import json
from contextlib import suppress
from pathlib import Path
from typing import Final

from deploy.core.errors import WeightsError
from deploy.core.gguf import read_metadata

MAX_TEMPLATE_BYTES = 16 << 20

TELLTALES: Final = (
    ("harmony", ("<|channel|>",)),
    ("kimi", ("<|tool_calls_section_begin|>",)),
    ("deepseek", ("<｜tool▁call",)),
    ("deepseek", ("｜DSML｜",)),
    ("mistral", ("[TOOL_CALLS]",)),
    ("glm", ("<arg_key>",)),
    ("granite", ("<|start_of_role|>",)),
    ("pythonic", ("[func_name1(",)),
    ("llama", ("<|start_header_id|>", '"parameters"')),
    ("llama", ("<|python_tag|>",)),
    ("xml", ("<function=",)),
    ("qwen", ("<tool_call>", "You are Qwen")),
    ("qwen", ("<tool_call>", "enable_thinking")),
    ("hermes", ("<tool_call>",)),
)
"""A format, and strings that only its chat templates hold together; the first row that fits counts."""
FORMATS: Final = tuple(dict.fromkeys(name for name, _ in TELLTALES))
_ALIKE: Final = frozenset({"qwen", "hermes"})
"""They write calls alike."""


def format_of(template: str) -> str:
    """The format that a chat template teaches; "": none of `FORMATS`."""
    return next((name for name, words in TELLTALES if all(word in template for word in words)), "")


def misfit(format: str, taught: str) -> str:
    """Why a format is not the one that the engine's chat template teaches, and what to do; "" if it is, or if one is not known."""
    if format == taught or not (format and taught) or {format, taught} <= _ALIKE:
        return ""
    return (
        f'the configuration says format = "{format}", and the chat template teaches "{taught}": remove format from the'
        " engine's table, or start the engine with the template that its model was trained on"
    )


def template_of(artefact: Path | None) -> str:
    """The chat template in a model's folder or GGUF file; "": there is none that can be read."""
    if artefact is None:
        return ""
    if alone := _text(artefact / "chat_template.jinja"):
        return alone
    for file in [artefact] if artefact.suffix == ".gguf" else sorted(artefact.glob("*.gguf")):
        with suppress(WeightsError):
            if isinstance(template := read_metadata(file).get("tokenizer.chat_template"), str):
                return template
    try:
        config = json.loads(_text(artefact / "tokenizer_config.json"))
    except (ValueError, RecursionError):
        return ""
    template = config.get("chat_template") if isinstance(config, dict) else None
    return template if isinstance(template, str) else json.dumps(template, ensure_ascii=False)


def _text(file: Path) -> str:
    try:
        with file.open("rb") as it:
            return it.read(MAX_TEMPLATE_BYTES).decode("utf-8", "replace")
    except OSError:
        return ""
