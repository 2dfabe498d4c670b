"""Model folders of any size that take no room: headers of real shapes, and files that are holes."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

Shapes = dict[str, tuple[int, ...]]

QWEN35_9B: dict[str, Any] = {
    "model_type": "qwen3_5_text", "vocab_size": 248320, "hidden_size": 4096, "intermediate_size": 12288,
    "num_hidden_layers": 32, "num_attention_heads": 16, "num_key_value_heads": 4, "head_dim": 256,
    "linear_num_key_heads": 16, "linear_num_value_heads": 32, "linear_key_head_dim": 128,
    "linear_value_head_dim": 128, "linear_conv_kernel_dim": 4, "tie_word_embeddings": False,
}  # fmt: skip
QWEN35_27B = QWEN35_9B | {
    "hidden_size": 5120, "num_hidden_layers": 64, "intermediate_size": 17408, "num_attention_heads": 24,
    "linear_num_value_heads": 48,
}  # fmt: skip
QWEN3_HALF: dict[str, Any] = {
    "model_type": "qwen3", "vocab_size": 32768, "hidden_size": 1024, "intermediate_size": 3072,
    "num_hidden_layers": 28, "num_attention_heads": 16, "num_key_value_heads": 8, "head_dim": 128,
    "tie_word_embeddings": True,
}  # fmt: skip
LLAMA: dict[str, Any] = {
    "model_type": "llama", "vocab_size": 128256, "hidden_size": 4096, "intermediate_size": 14336,
    "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8,
}  # fmt: skip


def shapes(config: Mapping[str, Any], mtp: bool = False) -> Shapes:
    """The tensors of a model of Qwen3's, Qwen3.5's or Llama's kind."""
    wide, words = config["hidden_size"], config["vocab_size"]
    found: Shapes = {"model.embed_tokens.weight": (words, wide), "model.norm.weight": (wide,)}
    if not config.get("tie_word_embeddings"):
        found["lm_head.weight"] = (words, wide)
    for number in range(config["num_hidden_layers"]):
        hybrid = config["model_type"] == "qwen3_5_text" and (number + 1) % 4
        found |= _layer(f"model.layers.{number}", config, bool(hybrid))
    if mtp:
        found |= {"mtp.fc.weight": (wide, 2 * wide), "mtp.norm.weight": (wide,)}
        found |= _layer("mtp.layers.0", config, False)
    return found


def _layer(at: str, config: Mapping[str, Any], deltanet: bool) -> Shapes:
    wide, inner = config["hidden_size"], config["intermediate_size"]
    found: Shapes = {f"{at}.{name}_layernorm.weight": (wide,) for name in ("input", "post_attention")}
    found |= {f"{at}.mlp.{name}_proj.weight": (inner, wide) for name in ("gate", "up")}
    found[f"{at}.mlp.down_proj.weight"] = (wide, inner)
    if deltanet:
        return found | _deltanet(f"{at}.linear_attn", config)
    heads, keys = config["num_attention_heads"], config["num_key_value_heads"]
    size = config.get("head_dim", wide // heads)
    gated = 2 if config["model_type"] == "qwen3_5_text" else 1
    at += ".self_attn"
    found |= {
        f"{at}.q_proj.weight": (gated * heads * size, wide),
        f"{at}.o_proj.weight": (wide, heads * size),
    }
    found |= {f"{at}.{name}_proj.weight": (keys * size, wide) for name in "kv"}
    if config["model_type"] != "llama":
        found |= {f"{at}.{name}_norm.weight": (size,) for name in "qk"}
    return found


def _deltanet(at: str, config: Mapping[str, Any]) -> Shapes:
    wide, heads = config["hidden_size"], config["linear_num_value_heads"]
    keys = config["linear_num_key_heads"] * config["linear_key_head_dim"]
    values = heads * config["linear_value_head_dim"]
    return {
        f"{at}.in_proj_qkv.weight": (2 * keys + values, wide),
        f"{at}.in_proj_z.weight": (values, wide),
        f"{at}.in_proj_a.weight": (heads, wide),
        f"{at}.in_proj_b.weight": (heads, wide),
        f"{at}.conv1d.weight": (2 * keys + values, 1, config["linear_conv_kernel_dim"]),
        f"{at}.A_log": (heads,),
        f"{at}.dt_bias": (heads,),
        f"{at}.norm.weight": (config["linear_value_head_dim"],),
        f"{at}.out_proj.weight": (wide, values),
    }


def write(folder: Path, config: Mapping[str, Any], tensors: Shapes, shards: int = 4) -> Path:
    """A folder with config.json and shards in BF16 that have a header each and nothing else; with an index if there
    are more than one."""
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(dict(config)))
    index: dict[str, str] = {}
    for number in range(shards):
        names = sorted(tensors)[number::shards]
        name = f"model-{number + 1:05}-of-{shards:05}.safetensors" if shards > 1 else "model.safetensors"
        write_shard(folder / name, {key: tensors[key] for key in names})
        index |= dict.fromkeys(names, name)
    if shards > 1:
        (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": index}))
    return folder


def write_shard(path: Path, tensors: Shapes) -> None:
    """One sparse safetensors file."""
    header, end = {}, 0
    for name, shape in tensors.items():
        begin = end
        size = 2
        for number in shape:
            size *= number
        end += size
        header[name] = {"dtype": "BF16", "shape": list(shape), "data_offsets": [begin, end]}
    text = json.dumps(header).encode()
    with path.open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        file.truncate(8 + len(text) + end)
