"""GGUF: llama.cpp's mix by name, ggml's packing against gguf's own reader, and the shipped files."""

from pathlib import Path
from typing import Any

import pytest

INSTALL = "needs the quantizer extra: pip install -e '.[quantizer]'"
gguf = pytest.importorskip("gguf", reason=INSTALL)

from quantizer.gguf import mix  # noqa: E402

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


def reader(name: str) -> Any:
    return gguf.GGUFReader(MODELS / name / f"{name}.gguf")
