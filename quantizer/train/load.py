"""Open a model that is sharded: no process ever holds more of it than its own rows, and one block while it computes.

source.skeleton   the model without numbers
fill_shards       the rows of each parameter that are this process's, read from the folder as slices
wake              one forward pass, in which FSDP2 sets itself up
"""

import torch
from safetensors import safe_open
from torch import nn

from quantizer.checkpoint.source import Source
from quantizer.core.shard import local, reshard, rows_of
from quantizer.train.learner import Learner


@torch.no_grad()
def fill_shards(learner: Learner, source: Source, device: str) -> None:
    """Give a sharded skeleton its memory on the device and the folder's weights in it."""
    made = [
        (module, name, buffer)
        for module in learner.modules()
        for name, buffer in module.named_buffers(recurse=False)
        if not buffer.is_meta
    ]
    learner.to_empty(device=device)
    for module, name, buffer in made:  # of rotary embeddings, which are in no file
        setattr(module, name, buffer.to(device))
    by_file: dict[str, list[tuple[str, nn.Parameter]]] = {}
    for bare, parameter in learner.model.named_parameters():
        name = source.names[bare]
        by_file.setdefault(source.folder.tensors[name].shard, []).append((name, parameter))
    for shard, wanted in by_file.items():
        with safe_open(source.path / shard, framework="pt") as file:
            for name, parameter in wanted:
                if local(parameter).numel():
                    local(parameter).copy_(file.get_slice(name)[rows_of(parameter)])


def wake(learner: Learner) -> None:
    """One forward pass over a few tokens of a sharded learner, not compiled; others need none."""
    zeros = torch.zeros(1, 4, dtype=torch.int64, device=next(learner.parameters()).device)
    with torch.no_grad(), torch.compiler.set_stance("force_eager"):
        learner.hidden_states(zeros, zeros[0, :1])
    for module in learner.modules():
        reshard(module)
