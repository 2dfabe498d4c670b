"""A small NVFP4 folder in ModelOpt's layout, made without ModelOpt, to be broken in every way."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

from quantizer.nvfp4 import blocks

ATTENTION, MLP = "model.layers.0.self_attn", "model.layers.0.mlp"
LINEAR = {
    f"{ATTENTION}.q_proj": (48, 64),
    f"{ATTENTION}.k_proj": (32, 64),
    f"{ATTENTION}.v_proj": (32, 64),
    f"{ATTENTION}.o_proj": (64, 48),
    f"{MLP}.gate_proj": (96, 64),
    f"{MLP}.up_proj": (96, 64),
    f"{MLP}.down_proj": (64, 96),
}
PLAIN = {"model.embed_tokens": (80, 64), "model.norm": (64,), "lm_head": (80, 64)}
FUSED = (
    (f"{ATTENTION}.q_proj", f"{ATTENTION}.k_proj", f"{ATTENTION}.v_proj"),
    (f"{MLP}.gate_proj", f"{MLP}.up_proj"),
)


def weights(seed: int = 0) -> dict[str, Any]:
    """A model in BF16, by the names of Hugging Face."""
    generator = torch.Generator().manual_seed(seed)
    return {
        f"{name}.weight": (torch.randn(shape, generator=generator) * 0.05).to(torch.bfloat16)
        for name, shape in {**LINEAR, **PLAIN}.items()
    }


def save_source(folder: Path, tensors: dict[str, Any]) -> Path:
    """A folder that is not quantized."""
    folder.mkdir()
    save_file(tensors, folder / "model.safetensors")
    return folder


@dataclass
class Checkpoint:
    """An NVFP4 folder before it is written: its tensors and its two configurations."""

    tensors: dict[str, Any]
    config: dict[str, Any] = field(default_factory=dict)
    quant_config: dict[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, source: dict[str, Any]) -> Checkpoint:
        """Quantized with the largest scale of each group that a server joins."""
        tensors = {name: tensor for name, tensor in source.items() if name.rpartition(".")[0] in PLAIN}
        groups = {name: group for group in FUSED for name in group}
        for name in LINEAR:
            members = [source[f"{n}.weight"].abs().amax() for n in groups.get(name, (name,))]
            second = blocks.tensor_scale(torch.stack(members).amax())
            packed, scale, second = blocks.quantize(source[f"{name}.weight"], second)
            tensors |= {
                f"{name}.weight": packed,
                f"{name}.weight_scale": scale,
                f"{name}.weight_scale_2": second,
            }
            tensors[f"{name}.input_scale"] = torch.tensor(0.001)
        exclude = ["lm_head", "model.embed_tokens"]
        return cls(
            tensors,
            {
                "model_type": "qwen3",
                "quantization_config": {
                    "quant_algo": "NVFP4",
                    "quant_method": "modelopt",
                    "ignore": [*exclude],
                },
            },
            {"quantization": {"quant_algo": "NVFP4", "group_size": 16, "exclude_modules": [*exclude]}},
        )

    @property
    def scheme(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Both places that name the algorithm."""
        return self.quant_config["quantization"], self.config["quantization_config"]

    def save(self, folder: Path, shards: int = 1) -> Path:
        """Write everything; in more than one shard with an index."""
        folder.mkdir()
        (folder / "config.json").write_text(json.dumps(self.config))
        (folder / "hf_quant_config.json").write_text(json.dumps(self.quant_config))
        if shards == 1:
            save_file(self.tensors, folder / "model.safetensors")
            return folder
        index: dict[str, str] = {}
        for number in range(shards):
            names = sorted(self.tensors)[number::shards]
            shard = f"model-{number + 1:05}-of-{shards:05}.safetensors"
            save_file({name: self.tensors[name] for name in names}, folder / shard)
            index |= dict.fromkeys(names, shard)
        (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": index}))
        return folder
