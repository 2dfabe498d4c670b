"""A chat template tells how its model writes calls."""

import json
from pathlib import Path

import pytest

from deploy.core.errors import SpecError
from deploy.engine.formats import misfit
from deploy.engine.spec import EngineSpec

TEMPLATES = {
    "qwen": "{{- 'You are Qwen, created by Alibaba Cloud.' }} <tool_call>\\n{\"name\": <function-name>}</tool_call>",
    "hermes": '<|im_start|>system <tools> For each function call <tool_call>\\n{"arguments": <args-dict>}</tool_call>',
    "xml": "<tool_call>\\n<function=example_function_name>\\n<parameter=example_parameter_1>",
    "llama": '{{- \'<|start_header_id|>system<|end_header_id|>\' }} {"name": function name, "parameters": {}}',
    "mistral": "[AVAILABLE_TOOLS]{{ tools }}[/AVAILABLE_TOOLS][TOOL_CALLS][",
    "pythonic": "put it in the format of [func_name1(params_name1=params_value1), func_name2(params)] <|start_header_id|>",
    "harmony": "<|start|>assistant<|channel|>commentary to=functions.f",
    "deepseek": "<｜Assistant｜><｜tool▁calls▁begin｜><｜tool▁call▁begin｜>",
    "glm": "<tool_call>{function-name}\\n<arg_key>{arg-key-1}</arg_key>",
    "granite": "<|start_of_role|>assistant<|end_of_role|><|tool_call|>",
    "kimi": "<|tool_calls_section_begin|><|tool_call_begin|>functions.f:0",
    "": "{% for m in messages %}<|im_start|>{{ m.role }}{% endfor %}",
}


def spec(folder: Path, stated: str | None = None) -> EngineSpec:
    return EngineSpec(name="a", dialect="vllm", driver="url", url="http://a", artefact=folder, format=stated)


def test_a_folder_s_template_is_read(tmp_path: Path) -> None:
    assert spec(tmp_path).taught_format == ""
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"chat_template": TEMPLATES["kimi"]}), "utf-8")
    assert spec(tmp_path).taught_format == "kimi"
    (tmp_path / "chat_template.jinja").write_text(TEMPLATES["glm"], "utf-8")
    assert spec(tmp_path).taught_format == "glm"


def test_the_template_in_a_gguf_is_read(gguf: Path) -> None:
    assert spec(gguf).taught_format == spec(gguf.parent).taught_format == "qwen"


def test_a_format_that_the_template_does_not_teach_is_told_with_what_to_do() -> None:
    told = misfit("llama", "hermes")
    assert 'format = "llama"' in told and 'teaches "hermes"' in told and "remove format" in told
    assert not any(misfit(*pair) for pair in (("glm", "glm"), ("glm", ""), ("", "glm"), ("qwen", "hermes")))


def test_a_format_that_is_none_is_refused_with_the_nearest(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="'lama' is none of .*llama"):
        spec(tmp_path, "lama")
