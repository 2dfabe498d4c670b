"""A LoRA fine-tune as PEFT saves it, as a source: merged into its base in float32, one tensor at a time."""

import math
import re
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final

from torch import Tensor

from quantizer.checkpoint.shards import SHARD_BYTES, ShardTensor, copy_others, write_weights
from quantizer.checkpoint.source import FLOATS, open_source
from quantizer.core.errors import SourceError
from quantizer.core.expert_names import unwrapped_name
from quantizer.core.json_file import read_object, write_object
from quantizer.verify.folder import TYPES, Folder, open_intact_folder

CONFIG: Final = "adapter_config.json"
PREFIX: Final = "base_model.model."
UP: Final = ".lora_B.weight"
DOWN: Final = ".lora_A.weight"
PLAIN: Final[dict[str, tuple[Any, ...]]] = {
    "peft_type": ("LORA",),
    "layer_replication": (None, []),
    "fan_in_fan_out": (None, False),
    "init_lora_weights": (None, True, False, "gaussian", "eva", "orthogonal"),  # others change the base, too
}
"""Values that are merged. Whatever else is learned (DoRA, biases, whole modules) is a tensor of another name."""


def merge(adapter: Path, folder: Path, base: Path | None) -> None:
    """Write the base with the adapter added to its weights. base: by default the adapter's own, if that is a local folder.
    Raises SourceError."""
    config = read_object(adapter / CONFIG)
    place = base or Path(str(config.get("base_model_name_or_path") or "nowhere"))
    if not place.is_dir():
        raise SourceError(f"{adapter}: its base {place} is no local folder; name it with --base DIR")
    open_source(place)  # refuses what cannot be quantized
    held, learned = open_intact_folder(place), open_intact_folder(adapter)
    pairs = _pairs(adapter, config, held, learned)
    folder.mkdir()
    copy_others(adapter, folder)  # its tokenizer and template come before the base's
    copy_others(place, folder)
    (folder / CONFIG).unlink()
    write_object(folder / "config.json", held.config)
    groups = [
        [ShardTensor(name, one.dtype, one.shape, partial(_summed, held, learned, name, pairs.get(name)))]
        for name, one in held.tensors.items()
    ]
    write_weights(folder, groups, SHARD_BYTES)


def _pairs(
    adapter: Path, config: Mapping[str, Any], held: Folder, learned: Folder
) -> dict[str, tuple[str, float]]:
    """The base's matrices that change, each with its module in the adapter and the scale of its change."""
    for key, plain in PLAIN.items():
        if (value := config.get(key)) not in plain:
            raise _unsupported(adapter, f"{key} {value!r}")
    names = {unwrapped_name(name): name for name in held.tensors}
    found: dict[str, tuple[str, float]] = {}
    for name in learned.tensors:
        module = name.removesuffix(UP).removesuffix(DOWN)
        place = names.get(unwrapped_name(f"{module.removeprefix(PREFIX)}.weight"), "")
        parts = [learned.tensors.get(module + part) for part in (UP, DOWN)]
        if module == name or not place or held.tensors[place].dtype not in FLOATS.values():
            raise _unsupported(adapter, name)
        up, down = (part.shape if part else () for part in parts)
        if len(up) != 2 or (up[0], *down[1:]) != held.tensors[place].shape or up[1:] != down[:1]:
            shape = list(held.tensors[place].shape)
            raise SourceError(f"{adapter}: {module} is {list(up)} times {list(down)}, the base's {shape}")
        found[place] = module, _scale(config, module, up[1])
    return found


def _unsupported(adapter: Path, what: str) -> SourceError:
    way = "merge it with peft's merge_and_unload, and give the folder that this makes"
    return SourceError(f"{adapter}: {what} is more than LoRA on linear layers; {way}")


def _scale(config: Mapping[str, Any], module: str, rank: int) -> float:
    """PEFT's: alpha over the rank, or over its root; alpha as the first pattern says that ends the module's name."""
    patterns = config.get("alpha_pattern") or {}
    alpha = next((a for key, a in patterns.items() if re.match(rf"(.*\.)?({key})$", module)), None)
    alpha = float(config.get("lora_alpha", 8) if alpha is None else alpha)
    return alpha / (math.sqrt(rank) if config.get("use_rslora") else rank)


def _summed(held: Folder, learned: Folder, name: str, change: tuple[str, float] | None) -> list[Tensor]:
    weight = held.load(name)
    if change is None:
        return [weight]
    module, scale = change
    up, down = (learned.load(module + part).float() for part in (UP, DOWN))
    return [(weight.float() + scale * (up @ down)).to(TYPES[held.tensors[name].dtype])]
