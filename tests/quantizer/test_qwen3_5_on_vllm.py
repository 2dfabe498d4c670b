"""What real vLLM answered out of a Qwen3.5 folder after surgery is what that folder says in transformers."""

import json
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch", reason="needs the quantizer extra: pip install -e '.[quantizer]'")

import torch
from transformers import AutoTokenizer

from quantizer.checkpoint.source import load_model, open_source
from quantizer.core.batch import Batch
from quantizer.layers.attach import attach, make_plan
from quantizer.ptq.calibrate import observe, set_input_amax
from quantizer.ptq.parity import served_model
from quantizer.ptq.scales import norm_of, set_scales
from quantizer.recipes.recipe import Layers
from quantizer.surgery.operation import parse_server
from quantizer.surgery.plan import apply_plan
from quantizer.surgery.plan import make_plan as make_surgery_plan
from tests.quantizer import folders, tiny

pytestmark = [pytest.mark.torch, pytest.mark.usefixtures("one_thread")]
VLLM = parse_server("vllm-0.24")
HEARD = json.loads((Path(__file__).parents[2] / "docs" / "reports" / "qwen3_5-on-vllm.json").read_text())


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder in BF16 that the recorded one was made of, number for number: a random model of seed 0."""
    return folders.save(tiny.qwen3_5_for_a_gpu, tmp_path_factory.mktemp("text") / "bf16")


def quantized(text: Path, out: Path) -> Path:
    """In NVFP4, with the best scales."""
    source = open_source(text)
    model = load_model(source)
    attach(model, make_plan(model, Layers()), norm_of("mse"))
    ids = torch.randint(0, folders.VOCABULARY, (4, 32), generator=torch.Generator().manual_seed(1))
    batch = Batch(ids, ids.clone(), torch.ones_like(ids, dtype=torch.bool))
    set_input_amax(model, observe(model, [batch]))
    set_scales(model, "mse")
    return folders.export(model, source, out)


def operated(folder: Path, out: Path) -> Path:
    apply_plan(make_surgery_plan(folder, VLLM), out, folders.NOW)
    return out


@torch.no_grad()
def ranks(model: Any, folder: Path, asked: dict[str, Any], reply: str) -> tuple[int, list[int]]:
    """How many tokens the prompt of a request has, and which place each of a reply's tokens has among the likeliest."""
    tokenizer: Any = AutoTokenizer.from_pretrained(folder, local_files_only=True)
    prompt = tokenizer.apply_chat_template(
        asked["messages"],
        tools=asked.get("tools"),
        add_generation_prompt=True,
        return_dict=True,
        **asked["chat_template_kwargs"],
    )["input_ids"]
    said = tokenizer.encode(reply, add_special_tokens=False)
    logits = model(torch.tensor([prompt + said])).logits[0, len(prompt) - 1 : -1].float()
    own = logits.gather(1, torch.tensor(said)[:, None])
    return len(prompt), (logits > own).sum(1).tolist()


def is_what_vllm_said(model: Any, folder: Path, form: str) -> None:
    """Token for token the likeliest of 2,048. The first one's lead is 0.01 to 0.03 in two replies, which is what BF16
    rounds by: the second place will do."""
    assert HEARD["operated"][form]
    for heard in HEARD["operated"][form]:
        reply, usage = heard["reply"]["choices"][0]["message"]["content"], heard["reply"]["usage"]
        prompt, places = ranks(model, folder, heard["request"], reply)
        assert (prompt, len(places)) == (usage["prompt_tokens"], usage["completion_tokens"])
        assert places[0] <= 1 and not any(places[1:])


def test_in_bf16_vllm_said_what_transformers_says_token_for_token(text: Path, tmp_path: Path) -> None:
    folder = operated(text, tmp_path / "operated")
    is_what_vllm_said(load_model(open_source(folder)).eval(), folder, "bf16")


def test_in_nvfp4_vllm_said_what_the_folders_own_bytes_stand_for(text: Path, tmp_path: Path) -> None:
    folder = operated(quantized(text, tmp_path / "nvfp4"), tmp_path / "operated")
    is_what_vllm_said(served_model(folder), folder, "nvfp4")
