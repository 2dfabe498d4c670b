"""How a model writes its thoughts and calls, told by its chat template."""

import json
from pathlib import Path
from typing import Final

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


def format_of(template: str) -> str:
    """The format that a chat template teaches; "": none of `FORMATS`."""
    return next((name for name, words in TELLTALES if all(word in template for word in words)), "")


def template_in(folder: Path | None) -> str:
    """The chat template in a model's folder; "": there is none that can be read."""
    if folder is None or not folder.is_dir():
        return ""
    alone = _text(folder / "chat_template.jinja")
    if alone:
        return alone
    try:
        config = json.loads(_text(folder / "tokenizer_config.json"))
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
