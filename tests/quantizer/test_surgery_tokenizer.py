"""Tokenizers for transformers 4: a class that it has, or a refusal."""

import copy
import json
from pathlib import Path
from typing import Any

import pytest

INSTALL = "needs the quantizer extra: pip install -e '.[quantizer]'"
pytest.importorskip("torch", reason=INSTALL)
pytest.importorskip("transformers", reason=INSTALL)

from quantizer.gguf.write import QWEN2  # noqa: E402
from quantizer.surgery.checkpoint import ModelCheckpoint  # noqa: E402
from quantizer.surgery.operation import parse_server  # noqa: E402
from quantizer.surgery.tokenizer import rope, tokenizer  # noqa: E402
from quantizer.verify.folder import Folder  # noqa: E402
from tests.quantizer import ggufs  # noqa: E402

pytestmark = pytest.mark.torch
OLD = parse_server("vllm-0.19")


def checkpoint(**config: Any) -> ModelCheckpoint:
    documents = {
        "config.json": {"model_type": "qwen3"},
        "tokenizer.json": json.loads(ggufs.tokenizer(QWEN2)),
        "tokenizer_config.json": {
            "tokenizer_class": "TokenizersBackend",
            "eos_token": "<|im_end|>",
            **config,
        },
    }
    return ModelCheckpoint(Folder(Path(), {}, {}, {}), documents, {})


def test_a_class_of_transformers_5_becomes_one_that_reads_the_same_file() -> None:
    step, after = tokenizer(checkpoint(), OLD)
    assert step.state == "needed"
    assert after.documents["tokenizer_config.json"] == {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "eos_token": "<|im_end|>",
    }
    assert tokenizer(after, OLD)[0].state == "fine"


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda d: d.pop("tokenizer.json"), "there is no tokenizer.json"),
        (
            lambda d: d["tokenizer_config.json"].update(
                added_tokens_decoder={"7": {"content": "<|im_end|>"}}
            ),
            "'<|im_end|>' is 7 in tokenizer_config.json and 0 in tokenizer.json",
        ),
    ],
)
def test_without_parity_the_operation_is_refused(change: Any, said: str) -> None:
    before = checkpoint()
    documents = copy.deepcopy(dict(before.documents))
    change(documents)
    step, after = tokenizer(ModelCheckpoint(Folder(Path(), {}, {}, {}), documents, {}), OLD)
    assert step.state == "refused" and said in step.why
    assert documents == after.documents


@pytest.mark.parametrize(
    ("config", "wanted"),
    [
        ({"rope_parameters": {"rope_theta": 1e6, "rope_type": "default"}}, {"rope_theta": 1e6}),
        ({"rope_parameters": {"rope_theta": 1e6}, "rope_theta": 1e6}, {}),
        ({"rope_theta": 1e4}, {}),
        (
            {"rope_parameters": {"rope_theta": 5.0, "rope_type": "yarn", "factor": 4.0}},
            {"rope_theta": 5.0, "rope_scaling": {"rope_type": "yarn", "factor": 4.0}},
        ),
    ],
)
def test_the_rotary_base_is_told_where_transformers_4_looks(config: Any, wanted: Any) -> None:
    before = ModelCheckpoint(
        Folder(Path(), {}, {}, {}), {"config.json": {"model_type": "qwen3", **config}}, {}
    )
    step, after = rope(before, OLD)
    assert {**before.config, **wanted} == after.config
    assert ("needed" if wanted else "fine") == step.state
    assert rope(after, OLD)[0].state == "fine"


def test_a_list_of_extra_tokens_goes_where_transformers_4_reads_lists() -> None:
    _, after = tokenizer(checkpoint(extra_special_tokens=["<a>"], additional_special_tokens=["<b>"]), OLD)
    config = after.documents["tokenizer_config.json"]
    assert config["additional_special_tokens"] == ["<b>", "<a>"]
    assert "extra_special_tokens" not in config
