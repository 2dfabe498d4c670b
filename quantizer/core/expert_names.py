"""Names of tensors: without a wrapper's prefix; and of experts (Qwen3-MoE), in the two forms that folders have.

Checkpoints have one tensor an expert, `experts.3.gate_proj.weight`; transformers 5 keeps all experts of a layer in two,
`experts.gate_up_proj` [experts, 2 x inner, width] and `experts.down_proj` [experts, width, inner]. Here everything is by
expert, as servers load it. Sources: transformers, modeling_qwen3_moe.py; vLLM, quantization/modelopt.py, ModelOptNvFp4FusedMoE.
"""

import re
from collections.abc import Iterable, Iterator
from typing import Final

GATE, UP, DOWN = "gate_proj", "up_proj", "down_proj"
_STACKED: Final = re.compile(r"(.*\.experts)\.(gate_up_proj|down_proj)")
_EXPERT: Final = re.compile(r"(.*\.experts)\.(\d+)\.(gate_proj|up_proj|down_proj)")


def expert_of(module: str) -> tuple[str, int, str] | None:
    """An expert's linear layer as its layer's experts, its index, and its part; None for another module."""
    found = _EXPERT.fullmatch(module)
    return (found[1], int(found[2]), found[3]) if found else None


def separate_tensor(name: str, shape: tuple[int, ...]) -> Iterator[tuple[str, int, slice]]:
    """The tensors that a stacked one stands for: an expert's name, its index, and its rows within that. Nothing for any
    other tensor."""
    found = _STACKED.fullmatch(name)
    if found is None or len(shape) != 3:
        return
    experts, rows = shape[:2]
    half = rows // 2
    parts = {DOWN: slice(0, rows)} if found[2] == DOWN else {GATE: slice(0, half), UP: slice(half, rows)}
    for index in range(experts):
        for part, place in parts.items():
            yield f"{found[1]}.{index}.{part}.weight", index, place


def sibling_experts(names: Iterable[str]) -> list[tuple[str, ...]]:
    """Layers whose inputs a server rounds by one scale: gate and up of all experts of a layer, and down of all."""
    groups: dict[tuple[str, bool], list[str]] = {}
    for name in names:
        if found := expert_of(name):
            groups.setdefault((found[0], found[2] == DOWN), []).append(name)
    return [tuple(group) for group in groups.values()]


def unwrapped_name(name: str) -> str:
    """A tensor's name without the prefix that a vision-language model adds."""
    return name.replace("language_model.", "", 1)
