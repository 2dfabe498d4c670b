"""Layers that a server joins into one. Pure.

vLLM loads these neighbours as rows of a single matrix and gives it one `weight_scale_2` and one `input_scale`, the
largest, without rescaling the blocks of the others. So neighbours must be quantized together and share both scales,
and whoever trains or calibrates them has to tie them first.

Source: `packed_modules_mapping` in vllm/model_executor/models/{qwen3,qwen3_5,llama,mixtral}.py.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

FUSED: Final = (
    ("q_proj", "k_proj", "v_proj"),
    ("gate_proj", "up_proj"),
    ("w1", "w3"),
    ("in_proj_qkv", "in_proj_z"),
    ("in_proj_b", "in_proj_a"),
)
"""Names of neighbours, in the order of the rows."""


def groups(modules: Iterable[str]) -> list[tuple[str, ...]]:
    """Those of the modules that a server joins: two or more neighbours each, in order of their names."""
    present = set(modules)
    parents = sorted({module.rpartition(".")[0] for module in present})
    found = []
    for parent in parents:
        for kinds in FUSED:
            members = tuple(n for n in (f"{parent}.{kind}".lstrip(".") for kind in kinds) if n in present)
            if len(members) > 1:
                found.append(members)
    return found
