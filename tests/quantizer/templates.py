"""Chat templates that differ where the real ones do, over the nano's tokenizer, and conversations for them.

`QWEN3` keeps a thought block only in the last message after the user's last words, `QWEN3_5` in all of them and opens
it in the prompt; both leave out thoughts of the past. `PLAIN` has no thoughts at all.
"""

import json
import shutil
from pathlib import Path
from typing import Any

NANO = Path(__file__).parents[2] / "models" / "annie-nano-hf"

_HEAD = """\
{%- set ns = namespace(last=-1) %}
{%- for m in messages %}{%- if m.role == 'user' %}{%- set ns.last = loop.index0 %}{%- endif %}{%- endfor %}
{%- if tools %}{{- '<|im_start|>system\\n' }}{%- for tool in tools %}{{- tool | tojson + '\\n' }}{%- endfor %}
{{- '<|im_end|>\\n' }}{%- endif %}
{%- for m in messages %}
"""
_TAIL = """\
{%- for c in m.tool_calls or [] %}
{{- '<tool_call>\\n{"name": "' + c.function.name + '", "arguments": ' + c.function.arguments | tojson + '}\\n</tool_call>' }}
{%- endfor %}
{{- '<|im_end|>\\n' }}
{%- else %}
{{- '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>\\n' }}
{%- endif %}
{%- endfor %}
"""
_CLOSED = "'<think>\\n\\n</think>\\n\\n'"
_THOUGHT = "'<think>\\n' + (m.reasoning_content or '') + '\\n</think>\\n\\n'"

QWEN3 = (
    _HEAD
    + "{%- if m.role == 'assistant' %}{{- '<|im_start|>assistant\\n' }}"
    + "{%- if loop.index0 > ns.last and (loop.last or m.reasoning_content) %}{{- "
    + _THOUGHT
    + " }}{%- endif %}{{- m.content }}"
    + _TAIL
    + "{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}"
    + "{%- if enable_thinking is defined and enable_thinking is false %}{{- "
    + _CLOSED
    + " }}{%- endif %}{%- endif %}"
)
QWEN3_5 = (
    _HEAD
    + "{%- if m.role == 'assistant' %}{{- '<|im_start|>assistant\\n' }}"
    + "{%- if loop.index0 > ns.last %}{{- "
    + _THOUGHT
    + " }}{%- endif %}{{- m.content }}"
    + _TAIL
    + "{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}"
    + "{%- if enable_thinking is defined and enable_thinking is false %}{{- "
    + _CLOSED
    + " }}{%- else %}{{- '<think>\\n' }}{%- endif %}{%- endif %}"
)
PLAIN = (
    _HEAD
    + "{%- if m.role == 'assistant' %}{{- '<|im_start|>assistant\\n' + m.content }}"
    + _TAIL
    + "{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{%- endif %}"
)
CALLS = PLAIN[PLAIN.index("{%- for c in m.tool_calls") : PLAIN.index("{{- '<|im_end|>\\n' }}\n{%- else %}")]
TOOLS = PLAIN[
    PLAIN.index("{%- if tools %}") : PLAIN.index("{%- for m in messages %}\n{%- if m.role == 'assistant'")
]
"""Parts of `PLAIN` that a template may lack."""
TEMPLATES = {"nano": None, "qwen3": QWEN3, "qwen3_5": QWEN3_5, "plain": PLAIN}

SEARCH = {
    "type": "function",
    "function": {
        "name": "web_search",
        "description": "Search the web.",
        "parameters": {
            "type": "object",
            "properties": {"query": {"type": "string"}, "count": {"type": "integer"}},
            "required": ["query"],
        },
    },
}


def said(role: str, content: Any, **more: Any) -> dict[str, Any]:
    return {"role": role, "content": content, **more}


def call(**arguments: Any) -> dict[str, Any]:
    """A call as it lies on disk."""
    function = {"name": "web_search", "arguments": json.dumps(arguments, ensure_ascii=False)}
    return {"id": "call_0", "type": "function", "function": function}


def talk(thought: str = "") -> dict[str, Any]:
    """Small talk, then a question that takes a search, a result, and an answer."""
    thoughts = {"reasoning_content": thought} if thought else {}
    return {
        "messages": [
            said("system", "You are Annie."),
            said("user", "Good morning!"),
            said("assistant", "Good morning to you.", **thoughts),
            said("user", "Will it rain in Paris?"),
            said("assistant", "", tool_calls=[call(query="rain in Paris", count=2)], **thoughts),
            said("tool", "Dry until noon.", tool_call_id="call_0"),
            said("assistant", "It stays dry until noon.", **thoughts),
        ],
        "tools": [SEARCH],
    }


def folder(path: Path, template: str) -> Path:
    """The nano's tokenizer with one of the templates."""
    path.mkdir(parents=True)
    for name in ("tokenizer.json", "tokenizer_config.json", "generation_config.json", "config.json"):
        shutil.copyfile(NANO / name, path / name)
    source = TEMPLATES[template]
    text = (NANO / "chat_template.jinja").read_text("utf-8") if source is None else source
    (path / "chat_template.jinja").write_text(text, encoding="utf-8")
    return path


def write(path: Path, rows: list[Any]) -> Path:
    """A JSONL file; a row that is a text is written as it is."""
    lines = [row if isinstance(row, str) else json.dumps(row, ensure_ascii=False) for row in rows]
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return path
