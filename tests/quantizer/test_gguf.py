"""GGUF: llama.cpp's mix by name, ggml's packing against gguf's own reader, and the shipped files."""

from pathlib import Path
from typing import Any

import pytest

INSTALL = "needs the quantizer extra: pip install -e '.[quantizer]'"
gguf = pytest.importorskip("gguf", reason=INSTALL)
np = pytest.importorskip("numpy", reason=INSTALL)

from quantizer.gguf import ggml, mix  # noqa: E402

MODELS = Path(__file__).parents[2] / "models"
Type = gguf.GGMLQuantizationType


@pytest.mark.parametrize(
    ("name", "dimensions", "tied", "kind"),
    [
        ("token_embd.weight", 2, True, "Q6_K"),
        ("token_embd.weight", 2, False, "Q4_K"),
        ("output.weight", 2, False, "Q6_K"),
        ("output_norm.weight", 1, True, "F32"),
        ("blk.0.attn_v.weight", 2, True, "Q6_K"),
        ("blk.1.attn_v.weight", 2, True, "Q4_K"),
        ("blk.3.ffn_down.weight", 2, True, "Q6_K"),
        ("blk.4.ffn_down.weight", 2, True, "Q4_K"),
        ("blk.0.attn_q.weight", 2, True, "Q4_K"),
        ("blk.0.attn_output.weight", 2, True, "Q4_K"),
        ("blk.0.attn_q_norm.weight", 1, True, "F32"),
    ],
)
def test_the_mix_of_q4_k_m(name: str, dimensions: int, tied: bool, kind: str) -> None:
    assert Type[kind] == mix.choose(mix.MIXES["q4_k_m"], name, dimensions, 8, tied)


@pytest.mark.parametrize(
    ("name", "types"),
    [
        ("output.weight", "Q6_K Q6_K Q8_0"),
        ("token_embd.weight", "Q5_K Q6_K Q8_0"),
        ("output_norm.weight", "F32 F32 F32"),
        ("blk.0.attn_v.weight", "Q6_K Q6_K Q8_0"),
        ("blk.1.attn_v.weight", "Q5_K Q6_K Q8_0"),
        ("blk.3.ffn_down.weight", "Q6_K Q6_K Q8_0"),
        ("blk.4.ffn_down.weight", "Q5_K Q6_K Q8_0"),
        ("blk.0.attn_q.weight", "Q5_K Q6_K Q8_0"),
    ],
)
def test_the_mixes_of_q5_k_m_q6_k_and_q8_0(name: str, types: str) -> None:
    dimensions = 1 if "norm" in name else 2
    got = [
        mix.choose(mix.MIXES[kind], name, dimensions, 8, False).name for kind in ("q5_k_m", "q6_k", "q8_0")
    ]
    assert types == " ".join(got)


# Largest error of a packed number over its row's largest number. Q4_K has 16 steps in a block of 32
# and six-bit scales, Q5_K 32, Q6_K 64 steps in a block of 16: half a step is 1/30, 1/62 and 1/62 of the range.
BOUNDS = {"Q4_K": 0.10, "Q5_K": 0.05, "Q6_K": 0.025, "Q8_0": 0.005}


@pytest.mark.parametrize("kind", BOUNDS)
def test_what_ggml_packs_gguf_unpacks(kind: str) -> None:
    pytest.importorskip("xllamacpp", reason="needs the engine's wheel: pip install -e '.[embedded]'")
    weights = np.random.default_rng(7).normal(size=(64, 512)).astype(np.float32)
    packed = ggml.quantize(weights, Type[kind])
    back = gguf.dequantize(packed, Type[kind])
    worst = np.abs(back - weights).max(axis=1) / np.abs(weights).max(axis=1)

    assert weights.shape == back.shape
    assert worst.max() < BOUNDS[kind]


def reader(name: str) -> Any:
    return gguf.GGUFReader(MODELS / name / f"{name}.gguf")


def test_the_shipped_files_carry_tokenizer_template_and_sampling() -> None:
    fields = reader("annie-nano-q4_k_m").fields
    value = {key: field.contents() for key, field in fields.items()}

    assert tuple(
        value[key] for key in ("general.architecture", "tokenizer.ggml.model", "tokenizer.ggml.pre")
    ) == ("qwen3", "gpt2", "qwen2")
    assert len(value["tokenizer.ggml.tokens"]) == 2048
    assert (MODELS / "annie-nano-hf" / "chat_template.jinja").read_text("utf-8") == value[
        "tokenizer.chat_template"
    ]
    kinds = dict(zip(value["tokenizer.ggml.tokens"], value["tokenizer.ggml.token_type"], strict=True))
    assert int(gguf.TokenType.CONTROL) == kinds["<|im_end|>"]
    assert int(gguf.TokenType.USER_DEFINED) == kinds["<tool_call>"]
    assert pytest.approx(0.3) == value["general.sampling.temp"]
