"""Templates with names: what stays of them in a folder that vLLM asks through its processor."""

import json
import shutil
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch", reason="needs the quantizer extra: pip install -e '.[quantizer]'")

from transformers import AutoTokenizer

from gates.artefact import artefact
from quantizer.surgery.checkpoint import CONFIG, TOKENIZER_CONFIG, ModelCheckpoint
from quantizer.surgery.operation import OperationResult
from quantizer.surgery.plan import apply_plan, make_plan
from quantizer.surgery.server import parse_server
from quantizer.surgery.templates import ERROR, templates
from quantizer.verify.folder import Folder

pytestmark = [pytest.mark.torch, pytest.mark.usefixtures("one_thread")]
NANO = Path(__file__).parents[2] / "models" / "annie-nano-nvfp4-hf"
VLLM, TEXT = parse_server("vllm-0.24"), parse_server("text")
XML = "additional_chat_templates/xml.jinja"
LIST = [{"name": "default", "template": "{{ a }}"}, {"name": "xml", "template": "{{ b }}"}]


def looked_at(
    *others: str, template: Any = None, kind: str = "qwen3_5", server: Any = VLLM
) -> tuple[OperationResult, ModelCheckpoint]:
    config = {} if template is None else {"chat_template": template}
    documents = {CONFIG: {"model_type": kind}, TOKENIZER_CONFIG: {"eos_token": "<e>", **config}}
    return templates(ModelCheckpoint(Folder(Path("folder"), {}, {}, {}), documents, {}, others), server)


def test_a_wrapped_folder_keeps_its_default_template_only() -> None:
    step, after = looked_at(XML, "chat_template.jinja", "README.md")

    assert step.state == "needed" and "400" in step.why and ERROR in step.why and "xml" in step.why
    assert step.changes == (f"{XML}: left out",)
    assert after.others == ("chat_template.jinja", "README.md")
    assert templates(after, VLLM)[0].state == "fine"


def test_of_a_list_the_default_becomes_the_template() -> None:
    step, after = looked_at(template=LIST)

    assert step.state == "needed" and "default, xml" in step.changes[0]
    assert after.documents[TOKENIZER_CONFIG] == {"eos_token": "<e>", "chat_template": "{{ a }}"}
    assert templates(after, VLLM)[0].state == "fine"


@pytest.mark.parametrize(
    ("kind", "server"), [("qwen3", VLLM), ("qwen3_5_text", VLLM), ("qwen3_5", TEXT)], ids=str
)
def test_where_a_tokenizer_chooses_the_names_are_told_and_stay(kind: str, server: Any) -> None:
    step, after = looked_at(XML, "chat_template.jinja", template=LIST, kind=kind, server=server)

    assert step.state == "fine" and "xml" in step.why
    assert XML in after.others and after.documents[TOKENIZER_CONFIG]["chat_template"] == LIST


@pytest.mark.parametrize("template", [None, LIST[1:]], ids=["files", "list"])
def test_without_a_default_it_is_refused(template: Any) -> None:
    step, after = looked_at(XML, template=template)

    assert step.state == "refused" and "xml" in step.why and XML in after.others


def test_the_folder_is_written_without_the_named_templates(tmp_path: Path) -> None:
    source, out = tmp_path / "source", tmp_path / "out"
    shutil.copytree(NANO, source)
    (source / "artefact.json").unlink()
    config = json.loads((source / CONFIG).read_text("utf-8"))
    wrapped = {"model_type": "qwen3_5", "architectures": ["Qwen3_5ForConditionalGeneration"]}
    (source / CONFIG).write_text(json.dumps(config | wrapped | {"text_config": config}), "utf-8")

    sealed = apply_plan(make_plan(source, VLLM), out, datetime(2026, 11, 21, tzinfo=UTC))

    assert [file.path for file in sealed.files if file.path.endswith(".jinja")] == ["chat_template.jinja"]
    assert artefact.verify(out) == []
    kinds = [type(AutoTokenizer.from_pretrained(folder).chat_template) for folder in (source, out)]
    assert kinds == [dict, str]  # what a processor hands to vLLM, too
    assert {step.operation for step in make_plan(out, VLLM).needed} == set()
