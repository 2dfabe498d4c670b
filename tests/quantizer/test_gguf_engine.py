"""What llama.cpp itself makes of the files: the same next tokens as transformers, the same answers in NVFP4 as in F16."""

from functools import partial
from pathlib import Path
from typing import Any

import pytest

INSTALL = "needs the quantizer extra: pip install -e '.[quantizer]'"
torch = pytest.importorskip("torch", reason=INSTALL)
pytest.importorskip("transformers", reason=INSTALL)
pytest.importorskip("xllamacpp", reason="needs the engine's wheel: pip install -e '.[embedded]'")

import gguf  # noqa: E402
from safetensors.torch import load_file  # noqa: E402
from transformers import Qwen3ForCausalLM  # noqa: E402

from quantizer.gguf.write import write_gguf  # noqa: E402
from quantizer.nvfp4 import blocks  # noqa: E402
from quantizer.verify.check import load_layer  # noqa: E402
from quantizer.verify.folder import open_folder  # noqa: E402
from tests.llama_server import post, serving  # noqa: E402
from tests.quantizer import ggufs  # noqa: E402

pytestmark = [pytest.mark.torch, pytest.mark.engine, pytest.mark.usefixtures("one_thread")]
ANNIE = Path(__file__).parents[2] / "models" / "annie-nano-hf"
# Largest difference of a log-probability. F16's products are taken with inputs in F16, NVFP4's with inputs rounded to
# eight bits: measured 0.045 (Phi-3) and 0.15 at most, where the logits' own spread is 1.1 to 1.3.
WITHIN = {"f16": 0.1, "nvfp4": 0.4}
MIXES = ("q8_0", pytest.param("q6_k", marks=pytest.mark.nightly), "q5_k_m")
"""Q5_K_M has matrices in Q6_K, too."""
WITHIN_MIX = 0.4
"""The same for mixes, whose products are taken with inputs rounded to eight bits, too: measured 0.13, 0.18 and 0.30."""


def dequantized(model: Any, folder: Path) -> Any:
    """The model with the numbers that an NVFP4 folder stands for."""
    held = open_folder(folder)
    with torch.no_grad():
        for name in load_file(folder / "model.safetensors"):
            if name.endswith(".weight_scale_2"):
                layer = name.removesuffix(".weight_scale_2")
                model.get_submodule(layer).weight.copy_(blocks.dequantize(load_layer(held, layer)))
    return model


@pytest.mark.parametrize(
    "build, kind",
    [
        *((build, kind) for kind in WITHIN for build in (ggufs.qwen3, ggufs.qwen3_5)),
        *((partial(ggufs.other, name), "f16") for name in ggufs.OTHERS),
        (partial(ggufs.other, "llama"), "nvfp4"),
    ],
)
def test_llama_cpp_foretells_what_transformers_does(tmp_path: Path, build: Any, kind: str) -> None:
    folder, model = ggufs.save(build(), tmp_path / "bf16"), build().float()
    if kind == "nvfp4":
        folder = ggufs.quantized(folder, tmp_path / "nvfp4")
        model = dequantized(model, folder)
    write_gguf(folder, tmp_path / "x.gguf", kind, "x")
    assert farthest(tmp_path / "x.gguf", model, 600) < WITHIN[kind]


def farthest(path: Path, model: Any, vocabulary: int) -> float:
    """The largest difference of a log-probability between llama.cpp with a file and a model of transformers: the ten
    likeliest tokens at each of eight steps after 48 random ones."""
    prompt = torch.randint(1, vocabulary, (48,), generator=torch.Generator().manual_seed(3)).tolist()
    body = {"prompt": prompt, "n_predict": 8, "n_probs": 10, "temperature": 0, "return_tokens": True}
    with serving(path, 1, 512) as base:
        got = post(base, "/completion", body)
    with torch.no_grad():
        wanted = torch.log_softmax(model(torch.tensor([prompt + got["tokens"]])).logits[0, 47:], dim=-1)
    apart, step = [], -1
    for told in got["completion_probabilities"]:
        step = got["tokens"].index(told["id"], step + 1)  # half characters are not told, so steps are missing
        apart += [abs(one["logprob"] - float(wanted[step, one["id"]])) for one in told["top_logprobs"]]
    assert len(apart) >= 20
    return max(apart)


@pytest.mark.parametrize("kind", MIXES)
def test_llama_cpp_computes_with_the_numbers_that_a_mix_stands_for(tmp_path: Path, kind: str) -> None:
    write_gguf(ANNIE, tmp_path / "x.gguf", kind, "x")
    model = Qwen3ForCausalLM.from_pretrained(ANNIE, dtype=torch.float32).eval()
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.QWEN3, model.config.num_hidden_layers)
    held = {tensor.name: tensor for tensor in gguf.GGUFReader(tmp_path / "x.gguf").tensors}
    with torch.no_grad():
        for name, weight in model.named_parameters():
            tensor = held[str(names.get_name(name, try_suffixes=(".weight",)))]
            numbers = torch.from_numpy(gguf.dequantize(tensor.data, tensor.tensor_type).copy())
            weight.copy_(numbers.reshape(weight.shape))
    assert farthest(tmp_path / "x.gguf", model, 2000) < WITHIN_MIX
