"""Training on several GPUs: FSDP2 over the decoder's blocks, started by torchrun; a no-op in a single process.

Every process reads all data and has the whole plan. It holds its rows of every matrix; whole weights exist for one block at a time.
"""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor

from quantizer.core.decoder import decoder_layers
from quantizer.core.errors import RecipeError, UnavailableError, first_line

PATIENCE: Final = timedelta(days=1)
"""Timeout for the process that writes the result: an export and its proof take minutes."""


@dataclass(frozen=True, slots=True)
class World:
    """The processes of a run, and this one's number among them. patient: their group for waiting on the CPU."""

    rank: int = 0
    size: int = 1
    patient: Any = None

    def total(self, values: Tensor) -> Tensor:
        """Added up over all processes, in place: float32 [...]."""
        if self.size > 1:
            torch.distributed.all_reduce(values)
        return values

    def agree(self, well: bool = True) -> bool:
        """Whether all processes succeeded. Waits for all of them."""
        if self.size == 1:
            return well
        failed = torch.tensor(0.0 if well else 1.0)
        torch.distributed.all_reduce(failed, group=self.patient)
        return failed.item() == 0


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
    if size == 1:
        return World(rank, size)
    if not torch.distributed.is_initialized():
        if torch.cuda.is_available():
            torch.cuda.set_device(local)
        torch.distributed.init_process_group("nccl" if torch.cuda.is_available() else "gloo")
    return World(rank, size, torch.distributed.new_group(backend="gloo", timeout=PATIENCE))


def first(environment: Mapping[str, str] = os.environ) -> bool:
    """Whether this process is the one that logs."""
    return environment.get("RANK", "0") == "0"


def leave() -> None:
    """End what `join` began."""
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()


@contextmanager
def peers_watched(world: World) -> Iterator[None]:
    """Within a `with` block the loss of another process is an UnavailableError that says how to go on."""
    try:
        yield
    except RuntimeError as error:
        if world.size == 1 or not _is_of_a_peer(error):
            raise
        told = first_line(error)
        raise UnavailableError(
            f"another process of this run has ended or cannot be reached ({told:.120}); "
            "start all of them again with --resume"
        ) from error


def _is_of_a_peer(error: RuntimeError) -> bool:
    """gloo's errors are plain RuntimeErrors."""
    return isinstance(error, torch.distributed.DistError) or any(
        name in str(error) for name in ("gloo", "Gloo", "NCCL", "Connection closed by peer")
    )


def shard(learner: nn.Module, model: nn.Module, world: World) -> None:
    """Cut the parameters of every block, and of what is around the blocks, into one part for each process. Raises RecipeError."""
    if world.size == 1:
        return
    if next(model.parameters()).dtype != torch.bfloat16:
        raise RecipeError('train.precision must be "bf16" with more than one process')
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard, register_fsdp_forward_method

    policy = MixedPrecisionPolicy(reduce_dtype=torch.float32)
    mesh = init_device_mesh("cuda" if torch.cuda.is_available() else "cpu", (world.size,))
    blocks: list[Any] = decoder_layers(model)
    for block in blocks:
        fully_shard(block, mesh=mesh, mp_policy=policy)
    root: Any = fully_shard(learner, mesh=mesh, mp_policy=policy)
    register_fsdp_forward_method(learner, "hidden_states")
    root.set_modules_to_forward_prefetch(blocks[:1])  # in backward passes FSDP2 gathers one ahead by itself
    for place, block in enumerate(blocks):
        block.set_modules_to_forward_prefetch(blocks[place + 1 : place + 2])


@contextmanager
def whole(module: nn.Module) -> Iterator[None]:
    """Within a `with` block a sharded module's own parameters are whole on every process; they are not to be changed."""
    gather: Any = getattr(module, "unshard", None)
    if gather:
        gather()
    try:
        yield
    finally:
        reshard(module)


def reshard(module: nn.Module) -> None:
    """Free the whole weights that a forward pass may have left in a sharded module."""
    let_go: Any = getattr(module, "reshard", None)
    if let_go:
        let_go()


def local(tensor: Tensor) -> Tensor:
    """This process's part of a sharded tensor; any other tensor itself."""
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


def rows_of(tensor: Tensor) -> slice:
    """The rows of a tensor that this process holds: those that `torch.chunk` gives to its rank."""
    if not isinstance(tensor, DTensor):
        return slice(0, tensor.shape[0])
    each = -(-tensor.shape[0] // tensor.device_mesh.size())
    begin = min(tensor.device_mesh.get_local_rank() * each, tensor.shape[0])
    return slice(begin, min(begin + each, tensor.shape[0]))


def gathered(model: nn.Module, keep: bool) -> dict[str, Tensor]:
    """All parameters and persistent buffers of a sharded model, whole, on the CPU, one at a time; every process has to
    ask, and gets nothing unless it keeps them."""
    found = {}
    for name, tensor in model.state_dict().items():
        whole_one = tensor.full_tensor() if isinstance(tensor, DTensor) else tensor
        if keep:
            found[name] = whole_one.cpu()
    return found
