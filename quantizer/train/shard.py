"""More than one GPU: FSDP2 over the decoder's blocks, started by torchrun; alone, everything here does nothing.

Every process reads all data and knows the whole plan, so nothing but weights and gradients travels. Quantized weights
are rounded in each forward then, from what was gathered for it, since no process holds them between steps.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor

from quantizer.core.errors import RecipeError


@dataclass(frozen=True, slots=True)
class World:
    """The processes of a run, and this one's number among them."""

    rank: int = 0
    size: int = 1

    def summed(self, values: Tensor) -> Tensor:
        """Added up over all processes, on the CPU: float32 [...]."""
        if self.size > 1:
            torch.distributed.all_reduce(values)
        return values.cpu()

    def wait(self) -> None:
        """For all the others."""
        if self.size > 1:
            torch.distributed.barrier()


def join(environment: Mapping[str, str] = os.environ) -> World:
    """The world that torchrun has made for this process, or one of its own. Raises RecipeError if torchrun's variables
    make no sense."""
    try:
        size, rank = int(environment.get("WORLD_SIZE", "1")), int(environment.get("RANK", "0"))
        local = int(environment.get("LOCAL_RANK", "0"))
    except ValueError as error:
        raise RecipeError(
            f"WORLD_SIZE, RANK and LOCAL_RANK must be numbers, as torchrun sets them ({error})"
        ) from None
    if size > 1 and not torch.distributed.is_initialized():
        if torch.cuda.is_available():
            torch.cuda.set_device(local)
        torch.distributed.init_process_group("nccl" if torch.cuda.is_available() else "gloo")
    return World(rank, size)


def first(environment: Mapping[str, str] = os.environ) -> bool:
    """Whether this process is the one that tells people of the run."""
    return environment.get("RANK", "0") == "0"


def leave() -> None:
    """End what `join` began."""
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()


def shard(learner: nn.Module, model: nn.Module, world: World) -> None:
    """Cut the parameters of every block, and of what is around the blocks, into one part for each process.

    Raises RecipeError for weights that are not BF16: their masters are what is float32.
    """
    if world.size == 1:
        return
    if next(model.parameters()).dtype != torch.bfloat16:
        raise RecipeError('train.precision must be "bf16" with more than one process')
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

    policy = MixedPrecisionPolicy(reduce_dtype=torch.float32)
    mesh = init_device_mesh(next(model.parameters()).device.type, (world.size,))
    for block in blocks_of(model):
        fully_shard(block, mesh=mesh, mp_policy=policy)
    fully_shard(learner, mesh=mesh, mp_policy=policy)


def blocks_of(model: nn.Module) -> list[nn.Module]:
    """The decoder's layers."""
    return list(model.get_submodule("model.layers").children())


@contextmanager
def whole(block: nn.Module) -> Iterator[None]:
    """Within a `with` block a sharded block has whole weights on every process; they are not to be changed."""
    sharded: Any = block if hasattr(block, "unshard") else None
    if sharded is not None:
        sharded.unshard()
    try:
        yield
    finally:
        if sharded is not None:
            sharded.reshard()


def gathered(model: nn.Module) -> dict[str, Tensor]:
    """All parameters and buffers of a sharded model, whole, on the CPU; every process has to ask."""
    state = model.state_dict()
    return {name: (t.full_tensor() if isinstance(t, DTensor) else t).cpu() for name, t in state.items()}
