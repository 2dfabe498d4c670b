"""Open a model that is sharded: no process ever holds more of it than its own rows, and one block while it computes.

    skeleton       the model on the meta device: shapes without bytes
    fill           the rows of each parameter that are this process's, read from the folder as slices
    wake           one forward pass, in which FSDP2 sets itself up

At the end `furnish` makes a whole model of a skeleton and what `shard.gathered` has collected.
"""

from __future__ import annotations

from typing import Any

import torch
from safetensors import safe_open
from torch import Tensor, nn

from quantizer.checkpoint.source import Source
from quantizer.core.errors import SourceError
from quantizer.train.learner import Learner
from quantizer.train.shard import local, reshard, rows_of


def skeleton(source: Source) -> nn.Module:
    """The text model of a folder in BF16 on the meta device, in evaluation mode."""
    from transformers import AutoConfig, AutoModelForCausalLM

    try:
        config = AutoConfig.from_pretrained(source.path, local_files_only=True).get_text_config()
        with torch.device("meta"):
            model: nn.Module = AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)
    except (OSError, ValueError, RuntimeError, KeyError, TypeError) as error:
        raise SourceError(f"{source.path}: cannot be loaded ({str(error).splitlines()[0]})") from error
    return model.eval()


@torch.no_grad()
def fill(learner: Learner, source: Source, device: str) -> None:
    """Give a sharded skeleton its memory on the device and the folder's weights in it.

    Buffers of quantized layers (amax, scales) are left to `refresh_weight_amax` and calibration. Raises SourceError if
    the folder lacks a weight, or holds one of another shape.
    """
    model: Any = learner.model
    learner.to_empty(device=device)
    _make_rotary_again(model, device)
    by_shard: dict[str, list[tuple[str, nn.Parameter]]] = {}
    for bare, parameter in model.named_parameters():
        name = source.names.get(bare)
        if name is None:
            raise SourceError(f"{source.path}: lacks {bare}")
        entry = source.folder.tensors[name]
        if tuple(entry.shape) != tuple(parameter.shape):
            raise SourceError(f"{source.path}: {name} is {tuple(entry.shape)}, not {tuple(parameter.shape)}")
        by_shard.setdefault(entry.shard, []).append((name, parameter))
    for shard, wanted in by_shard.items():
        with safe_open(source.path / shard, framework="pt") as file:
            for name, parameter in wanted:
                if local(parameter).numel():
                    local(parameter).copy_(_rows(file, name, rows_of(parameter)))


def wake(learner: Learner) -> None:
    """One forward pass over a few tokens of a sharded learner; others need none."""
    device = next(learner.parameters()).device
    with torch.no_grad():
        learner.hear(torch.zeros(1, 4, dtype=torch.int64, device=device), torch.zeros(1, dtype=torch.int64, device=device))  # fmt: skip
    for module in learner.modules():
        reshard(module)


def furnish(model: Any, state: dict[str, Tensor], device: str) -> nn.Module:
    """A skeleton with these parameters and buffers, which are not copied; on the device."""
    model.load_state_dict(state, assign=True)
    model.tie_weights()
    _make_rotary_again(model, device)
    furnished: nn.Module = model.to(device)
    return furnished


def _rows(file: Any, name: str, rows: slice) -> Tensor:
    """Some rows of a tensor of a safetensors file; nothing else is read."""
    part: Tensor = file.get_slice(name)[rows.start : rows.stop]
    return part


def _make_rotary_again(model: nn.Module, device: str) -> None:
    """The modules whose buffers are computed when they are made, and are in no file: rotary embeddings."""
    for name, module in list(model.named_modules()):
        if "RotaryEmbedding" in type(module).__name__:
            kind: Any = type(module)
            model.set_submodule(name, kind(config=model.config).to(device))
