"""The chat template: one source, two files.

ChatML in the convention of Qwen3.5:

* `enable_thinking` true opens a thought in the generation prompt (`<think>` and a line break); false closes it
  there (an empty block), so that the model does not think. The default is false: Annie thinks only when asked to.
* Thoughts of turns before the last user message are dropped; later ones stay, because the model is still in the
  middle of that turn (a call, its result, and only then the answer).
* Tools are listed in the system turn, and the same turn shows how a call is written: `hermes` shows JSON, `xml`
  shows Qwen3.5's function and parameter tags. The model follows what it is shown.

There are two files instead of one switch because llama.cpp chooses its tool parser by the template's text. A text
that contains `<tool_call>`, `<function=` and `<parameter=` is parsed as Qwen3-Coder's, whatever the switch says
(common/chat.cpp, common_chat_params_init_qwen3_coder). So the file in a GGUF must not contain the XML tags at all.
"""

from __future__ import annotations

import json
from functools import cache
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    import jinja2


Style = Literal["hermes", "xml"]
Message = dict[str, Any]


END_OF_TURN = "<|im_end|>"

# The instructions come from Qwen3 (hermes) and Qwen3.5 (xml), shortened: a nano model reads every
# word of them on every request.
_INTRO = "# Tools\\n\\nYou may call these functions:\\n<tools>"
_HERMES_RULE = (
    "\\n</tools>\\n\\nTo call a function, answer with a JSON object in tool_call tags:\\n"
    '<tool_call>\\n{\\"name\\": <name>, \\"arguments\\": <object>}\\n</tool_call>'
)
_XML_RULE = (
    "\\n</tools>\\n\\nTo call a function, answer in this form:\\n<tool_call>\\n<function=name>\\n"
    "<parameter=key>\\nvalue\\n</parameter>\\n</function>\\n</tool_call>"
)

_HERMES_CALL = """\
{{- '<tool_call>\\n{"name": "' + call.name + '", "arguments": ' }}
{%- if call.arguments is string %}
{{- call.arguments }}
{%- else %}
{{- call.arguments | tojson }}
{%- endif %}
{{- '}\\n</tool_call>' }}"""

_XML_CALL = """\
{{- '<tool_call>\\n<function=' + call.name + '>\\n' }}
{%- if call.arguments is mapping %}
{%- for key, value in call.arguments | items %}
{{- '<parameter=' + key + '>\\n' }}
{{- value if value is string else value | tojson }}
{{- '\\n</parameter>\\n' }}
{%- endfor %}
{%- endif %}
{{- '</function>\\n</tool_call>' }}"""

_SOURCE = """\
{%- macro text(content) %}
{%- if content is string %}
{{- content }}
{%- elif content is iterable and content is not mapping %}
{%- for part in content %}
{%- if part.text is defined %}
{{- part.text }}
{%- endif %}
{%- endfor %}
{%- endif %}
{%- endmacro %}
{%- set ns = namespace(last_query=-1, system='') %}
{%- for message in messages %}
{%- if message.role == 'user' %}
{%- set ns.last_query = loop.index0 %}
{%- elif message.role == 'system' or message.role == 'developer' %}
{%- set ns.system = ns.system + ('\\n\\n' if ns.system else '') + text(message.content) %}
{%- endif %}
{%- endfor %}
{%- if tools %}
{{- '<|im_start|>system\\n' + (ns.system + '\\n\\n' if ns.system else '') }}
{{- "@INTRO@" }}
{%- for tool in tools %}
{{- '\\n' }}
{{- tool | tojson }}
{%- endfor %}
{{- "@RULE@<|im_end|>\\n" }}
{%- elif ns.system %}
{{- '<|im_start|>system\\n' + ns.system + '<|im_end|>\\n' }}
{%- endif %}
{%- for message in messages %}
{%- set content = text(message.content) %}
{%- if message.role == 'user' %}
{{- '<|im_start|>user\\n' + content + '<|im_end|>\\n' }}
{%- elif message.role == 'assistant' %}
{%- set thought = message.reasoning_content or message.reasoning or '' %}
{%- if '</think>' in content %}
{%- set thought = content.split('</think>')[0].split('<think>')[-1] %}
{%- set content = content.split('</think>')[-1] | trim %}
{%- endif %}
{{- '<|im_start|>assistant\\n' }}
{%- if loop.index0 > ns.last_query %}
{{- '<think>\\n' + thought | trim + '\\n</think>\\n\\n' }}
{%- endif %}
{{- content }}
{%- for tool_call in message.tool_calls or [] %}
{%- set call = tool_call.function or tool_call %}
{%- if content or not loop.first %}
{{- '\\n' }}
{%- endif %}
@CALL@
{%- endfor %}
{{- '<|im_end|>\\n' }}
{%- elif message.role == 'tool' %}
{%- if loop.first or loop.previtem.role != 'tool' %}
{{- '<|im_start|>user' }}
{%- endif %}
{{- '\\n<tool_response>\\n' + content + '\\n</tool_response>' }}
{%- if loop.last or loop.nextitem.role != 'tool' %}
{{- '<|im_end|>\\n' }}
{%- endif %}
{%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
{{- '<|im_start|>assistant\\n' }}
{%- if enable_thinking is defined and enable_thinking is true %}
{{- '<think>\\n' }}
{%- else %}
{{- '<think>\\n\\n</think>\\n\\n' }}
{%- endif %}
{%- endif %}
"""


def source(style: Style) -> str:
    """The Jinja text of one template file."""
    rule, call = (_HERMES_RULE, _HERMES_CALL) if style == "hermes" else (_XML_RULE, _XML_CALL)
    filled = _SOURCE.replace("@INTRO@", _INTRO).replace("@RULE@", rule)
    return filled.replace("@CALL@", call)


def tojson(value: object) -> str:
    """JSON as transformers' `tojson` filter writes it: not ASCII-only, and without HTML escapes."""
    return json.dumps(value, ensure_ascii=False)


@cache
def _compiled(style: Style) -> jinja2.Template:
    # The same sandbox and switches as transformers/utils/chat_template_utils.py.
    import jinja2.sandbox  # here: whoever only asks the models needs no extra

    environment = jinja2.sandbox.ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
    environment.filters["tojson"] = tojson
    return environment.from_string(source(style))


def render(
    messages: list[Message],
    tools: list[dict[str, Any]] | None = None,
    *,
    style: Style = "hermes",
    thinking: bool = False,
    prompt: bool = True,
) -> str:
    """Render messages to the text that a model reads; `prompt` appends the beginning of an assistant turn."""
    return _compiled(style).render(
        messages=messages, tools=tools or None, enable_thinking=thinking, add_generation_prompt=prompt
    )


def render_call(name: str, arguments: dict[str, Any], style: Style) -> str:
    """One tool call as the assistant writes it."""
    if style == "hermes":
        return f'<tool_call>\n{{"name": "{name}", "arguments": {tojson(arguments)}}}\n</tool_call>'
    lines = [f"<parameter={k}>\n{_xml_value(v)}\n</parameter>\n" for k, v in arguments.items()]
    return f"<tool_call>\n<function={name}>\n{''.join(lines)}</function>\n</tool_call>"


def _xml_value(value: object) -> str:
    return value if isinstance(value, str) else tojson(value)
