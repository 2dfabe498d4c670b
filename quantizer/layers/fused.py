"""Layers that a server fuses into one, with one `weight_scale_2` and one `input_scale`: the largest of theirs.

So they must be quantized together and share both scales from the start. Source: `packed_modules_mapping` in
vllm/model_executor/models/{qwen3,qwen3_5,llama,mixtral}.py.
"""

from collections.abc import Iterable
from typing import Final

FUSED: Final = (
    ("q_proj", "k_proj", "v_proj"),
    ("gate_proj", "up_proj"),
    ("w1", "w3"),
    ("in_proj_qkv", "in_proj_z"),
    ("in_proj_b", "in_proj_a"),
)
"""Names of layers that are fused, in the order of their rows."""


def fused_groups(modules: Iterable[str]) -> list[tuple[str, ...]]:
    """The groups of two or more of these modules that a server fuses, sorted by name."""
    present = set(modules)
    parents = sorted({module.rpartition(".")[0] for module in present})
    found = []
    for parent in parents:
        for kinds in FUSED:
            members = tuple(n for n in (f"{parent}.{kind}".lstrip(".") for kind in kinds) if n in present)
            if len(members) > 1:
                found.append(members)
    return found
