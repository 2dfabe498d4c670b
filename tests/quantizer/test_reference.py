"""The reference engine computes what our reference computes, to the bit, and says what that is."""

import shutil
from functools import partial
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="needs the quantizer extra: make quantizer")

from safetensors.torch import load_file, save_file  # noqa: E402
from transformers import Qwen3_5Config  # noqa: E402

from deploy.engine.dialects import from_start  # noqa: E402
from deploy.engine.spec import EngineSpec  # noqa: E402
from quantizer.core.batch import Batch  # noqa: E402
from quantizer.core.errors import SourceError  # noqa: E402
from quantizer.ptq.parity import (  # noqa: E402
    outputs,
    reference_model,
    served_model,
)
from quantizer.reference.server import Served, computes, not_batched  # noqa: E402
from tests.quantizer import tiny  # noqa: E402

MODELS = Path(__file__).parents[2] / "models"
NVFP4 = MODELS / "annie-nano-nvfp4-hf"

pytestmark = pytest.mark.torch


def hidden(model: Any, ids: Any) -> Any:
    """The last hidden states of transformers' own forward."""
    with torch.inference_mode():
        return model.model(input_ids=ids, use_cache=False).last_hidden_state


@pytest.mark.parametrize("weight_only", [False, True])
def test_it_computes_what_our_reference_computes(weight_only: bool) -> None:
    torch.manual_seed(1)
    ids = torch.randint(5, 2000, (2, 24))
    served = served_model(NVFP4, weight_only=weight_only)
    batch = Batch(ids, torch.ones_like(ids, dtype=torch.bool), torch.ones_like(ids, dtype=torch.bool))
    (wanted,) = outputs(served, [batch])
    found = hidden(reference_model(NVFP4, weight_only=weight_only), ids)
    assert torch.equal(found, wanted)


def test_a_folder_without_input_scales_is_served_weight_only_or_not_at_all(tmp_path: Path) -> None:
    folder = tmp_path / "weights"
    shutil.copytree(NVFP4, folder)
    tensors = load_file(folder / "model.safetensors")
    kept = {name: tensor for name, tensor in tensors.items() if not name.endswith(".input_scale")}
    save_file(kept, folder / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(SourceError, match="weight-only"):
        reference_model(folder)
    reference_model(folder, weight_only=True)


def test_a_layer_that_the_model_does_not_have_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "weights"
    shutil.copytree(NVFP4, folder)
    tensors = load_file(folder / "model.safetensors")
    parts = {
        name: tensor for name, tensor in tensors.items() if name.startswith("model.layers.0.mlp.up_proj.")
    }
    tensors |= {name.replace("mlp", "mlp.experts.0"): tensor.clone() for name, tensor in parts.items()}
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(SourceError, match="no layer of transformers' model"):
        reference_model(folder)


@pytest.mark.parametrize(("weight_only", "scheme"), [(False, "W4A4"), (True, "W4A16")])
def test_a_report_has_its_numerics(weight_only: bool, scheme: str) -> None:
    served = Served(folder=NVFP4, name="annie", host="127.0.0.1", port=1, device="cpu", weight_only=weight_only, batching=True)  # fmt: skip
    spec = EngineSpec(name="annie", dialect="openai", driver="process", artefact=NVFP4, command=("manners", "quantize", "serve"),
                      args=("{model}", "--name", "{name}", "--host", "{host}", "--port", "{port}"))  # fmt: skip
    found = from_start(spec, f"a line before\n{computes(served)}\nINFO: started\n", "some GPU")
    assert (found.kernel, found.scheme, found.kv_cache, found.gpu) == (
        "ReferenceNvFp4",
        scheme,
        "bfloat16",
        "none",
    )
    assert from_start(spec, "INFO: another server\n", "some GPU").scheme is None


@pytest.mark.parametrize(
    ("build", "kinds"),
    [
        (tiny.qwen3, []),
        (partial(tiny.decoder, "llama"), []),
        (partial(tiny.decoder, "gemma3_text"), []),
        (tiny.qwen3_5, ["linear_attention"]),
    ],
)
def test_layers_decide_whether_requests_are_batched(build: Any, kinds: list[str]) -> None:
    config = build().config
    assert not_batched(config) == kinds
    if config.model_type == "qwen3_5_text":  # as the text part of a vision-language model, too
        assert not_batched(Qwen3_5Config(text_config=config.to_dict())) == kinds
