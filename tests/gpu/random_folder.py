"""Write a Hugging Face folder of a random model of any size, tensor by tensor.

The numbers follow from the seed, the tensor's name and the device that draws them. Input channels have unlike sizes, as
trained ones do. The tokenizer and the templates are annie-nano's, whatever the vocabulary.

    python -m tests.gpu.random_folder FOLDER [--shape tiny|9b] [--rows FILE]
"""

import argparse
import json
import shutil
import zlib
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any, Final

import torch
from torch import Tensor

from quantizer.checkpoint.shards import SHARD_BYTES, Group, ShardTensor, write_weights
from quantizer.checkpoint.source import from_config
from quantizer.core.cost import chosen_device
from quantizer.core.json_file import write_object
from quantizer.nano import conversations

NANO: Final = Path(__file__).parents[2] / "models" / "annie-nano-hf"
TALKING: Final = (
    "tokenizer.json",
    "tokenizer_config.json",
    "chat_template.jinja",
    "generation_config.json",
)
STD: Final = 0.02
SPREAD: Final = 0.5  # of the binary logarithm of a channel's size
NUMBERS = 2**24  # drawn at a time
CONVERSATIONS: Final = 512
SHAPES: Final[dict[str, dict[str, Any]]] = {
    "9b": {},
    "tiny": {
        "vocab_size": 2048, "hidden_size": 256, "intermediate_size": 512, "num_hidden_layers": 4, "num_attention_heads": 4,
        "num_key_value_heads": 2, "head_dim": 64, "linear_num_key_heads": 2, "linear_num_value_heads": 4,
        "linear_key_head_dim": 32, "linear_value_head_dim": 32,
    },
}  # fmt: skip
"""What differs from `Qwen3_5TextConfig()`. The tokenizer has 2,048 tokens; the 9B keeps its real vocabulary."""


def write_random(
    folder: Path, changes: dict[str, Any], device: str = "cpu", shard_bytes: int = SHARD_BYTES
) -> int:
    """Write a Qwen3.5 text model. changes: what differs from `Qwen3_5TextConfig()`. Returns its number of parameters."""
    from transformers import Qwen3_5TextConfig

    folder.mkdir(parents=True)
    config = Qwen3_5TextConfig(**{"tie_word_embeddings": False, **changes})
    config.architectures = ["Qwen3_5ForCausalLM"]
    config.dtype = "bfloat16"
    special = json.loads((NANO / "generation_config.json").read_text())
    for key in ("eos_token_id", "pad_token_id"):
        setattr(config, key, special.get(key))
    model = from_config(config, torch.bfloat16)
    groups: list[Group] = [
        [ShardTensor(name, "BF16", tuple(one.shape), partial(_numbers, name, tuple(one.shape), device))]
        for name, one in model.named_parameters()
    ]
    write_weights(folder, groups, shard_bytes)
    write_object(folder / "config.json", config.to_dict() | {"dtype": "bfloat16"})
    for name in TALKING:
        shutil.copy(NANO / name, folder)
    return sum(one.numel() for one in model.parameters())


def _numbers(name: str, shape: tuple[int, ...], device: str) -> Iterator[Tensor]:
    generator = torch.Generator(device).manual_seed(zlib.crc32(name.encode()))
    options: dict[str, Any] = {"generator": generator, "device": device}
    if len(shape) == 1:
        yield _vector(name, shape[0], options).to(torch.bfloat16)
        return
    size = torch.exp2(SPREAD * torch.randn(shape[-1], **options)) * STD
    rows = max(1, NUMBERS // shape[-1])
    for begin in range(0, shape[0], rows):
        part = (min(rows, shape[0] - begin), *shape[1:])
        yield (torch.randn(part, **options) * size).to(torch.bfloat16)


def _vector(name: str, width: int, options: dict[str, Any]) -> Tensor:
    """As transformers would begin: A_log of rates from 1 to 16, dt_bias of ones, and gains of one, which most norms of
    Qwen3.5 store as zero."""
    if name.endswith("A_log"):
        return (
            torch.empty(width, device=options["device"]).uniform_(1, 16, generator=options["generator"]).log()
        )
    ones = name.endswith(("dt_bias", "linear_attn.norm.weight"))
    return torch.full((width,), float(ones), device=options["device"])


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.gpu.random_folder")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--shape", default="9b", choices=sorted(SHAPES), help="of the model (%(default)s)")
    parser.add_argument("--rows", type=Path, help="a file of conversations to write, too")
    given = parser.parse_args()
    print(f"{write_random(given.folder, SHAPES[given.shape], chosen_device(None)):,} parameters")
    if given.rows:
        conversations.write(given.rows, 4 if given.shape == "tiny" else CONVERSATIONS)


if __name__ == "__main__":
    main()
