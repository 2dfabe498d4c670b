"""AdamW applied inside the backward pass, with low-bit moments and BF16 weights that are rounded stochastically.

A parameter's gradient is used as soon as backward has it, and freed: a parameter takes 2 bytes for its weight and 2 or 1 for
AdamW's moments, where the exact path takes up to 20. Moments and stochastic rounding are torchao's (arXiv 2110.02861, 2309.01507).
Two things differ from the exact path:

rounding    Stochastic rounding moves a BF16 weight to one of two neighbours so that the mean is exact.
clipping    The length of the whole gradient is known only after backward. So each parameter's gradient is clipped to its usual
            share of `clip`, a running mean over the steps (`SHARE_DECAY`); the first step is computed once to measure the shares.

Vectors take the exact path of `quantizer.train.weights` when backward is over. A step is one micro-batch in each process. Sharded
parameters are stepped by their parts, each with its own moments and its own share of `clip`.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from functools import partial
from typing import Any, Final

import torch
from torch import Tensor, nn

from quantizer.core.errors import CheckpointError, UnavailableError
from quantizer.core.shard import World, local
from quantizer.recipes.recipe import Train
from quantizer.train.weights import MasterOptimizer, Weights, decays

CHUNK: Final = 2**25
"""Elements that one step of AdamW computes at a time: 128 MiB for each float32 temporary."""
COMPILED: Final = 2**18
"""Elements from which on a parameter's step is compiled on a GPU."""
SHARE_DECAY: Final = 0.9
"""Of the running mean of a parameter's share of the gradient."""
MOMENTS: Final = ("exp_avg", "exp_avg_sq")


class OptimizerInBackward:
    """Steps each of the named parameters in the backward pass that computes its gradient. Raises UnavailableError.

    Between `begin` and `finish` there must be one backward pass.
    """

    def __init__(
        self, named: Iterable[tuple[str, nn.Parameter]], settings: Train, world: World | None = None
    ) -> None:
        self.model = dict(named)
        self.world = world or World()
        self.clip = settings.clip
        self.measured = settings.clip <= 0
        self._measuring = False
        device = next(iter(self.model.values())).device
        self._squares = torch.zeros(len(self.model), device=device)
        """Squared lengths of the last backward pass's gradients, of this process's parts: float32 [parameters]."""
        self._shares = torch.zeros(len(self.model), device=device)
        """Running means of their part of the whole squared length: float32 [parameters]."""
        self._lr = torch.tensor(0.0)
        vectors = {name: parameter for name, parameter in self.model.items() if parameter.ndim < 2}
        self._vectors = MasterOptimizer(Weights(vectors.items()), settings) if vectors else None
        self._parts = {
            name: _chunks(p) for name, p in self.model.items() if name not in vectors and local(p).numel()
        }
        self._vector_names = vectors.keys()
        make = _optimizer_class(settings.optimizer)
        self._optimizers = {
            name: make(
                parts,
                lr=settings.lr,
                betas=(settings.betas[0], settings.betas[1]),
                weight_decay=settings.weight_decay if decays(name, self.model[name]) else 0.0,
                bf16_stochastic_round=True,
            )
            for name, parts in self._parts.items()
        }
        for optimizer in self._optimizers.values():
            optimizer.param_groups[0]["lr"] = self._lr
            _make_moments(optimizer)
        for index, (name, parameter) in enumerate(self.model.items()):
            parameter.register_post_accumulate_grad_hook(partial(self._apply, index, name))

    def begin(self, lr: float) -> None:
        """Set the learning rate of the backward pass that follows."""
        self._lr.fill_(lr)
        if self._vectors:
            self._vectors.begin(lr)

    @contextmanager
    def measuring(self) -> Iterator[None]:
        """A `with` block around a backward pass that moves nothing and sets the shares; for the first step."""
        self._measuring = True
        try:
            yield
        finally:
            self._measuring = False
        whole = self.world.total(self._squares.sum())
        self._shares.copy_(self._squares / whole.clamp(min=1e-30))
        self.measured = True

    def collect(self) -> None:
        """Backward has moved the matrices already."""
        if self._vectors and not self._measuring:
            self._vectors.collect()

    @torch.no_grad()
    def finish(self) -> Tensor:
        """End the step; returns how long its gradient was before clipping: float32 []."""
        whole = self.world.total(self._squares.sum())
        self._shares.lerp_(self._squares / whole.clamp(min=1e-30), 1 - SHARE_DECAY)
        length = whole.sqrt()
        if self._vectors:
            self._vectors.apply(length)
        return length

    def state(self) -> dict[str, Any]:
        """The weights, moments and shares, as plain values."""
        return {
            "weights": {name: local(self.model[name].detach()) for name in self._parts},
            "moments": self._moments(),
            "steps": {name: self._step_of(name) for name in self._parts},
            "vectors": self._vectors.state() if self._vectors else None,
            "shares": self._shares,
            "measured": self.measured,
        }

    @torch.no_grad()
    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on from a `state`. Raises CheckpointError if it is of another kind of optimizer."""
        if "shares" not in state:
            raise CheckpointError("the checkpoint is of another optimizer; remove its folder to begin again")
        for name in self._parts:
            local(self.model[name]).copy_(state["weights"][name])
            for held in self._optimizers[name].state.values():
                held["step"].fill_(state["steps"][name])
        for name, moments in self._moments().items():
            for mine, theirs in zip(moments, state["moments"][name], strict=True):
                mine.copy_(theirs)
        if self._vectors:
            self._vectors.restore(state["vectors"])
        self._shares.copy_(state["shares"])
        self.measured = state["measured"]

    @torch.no_grad()
    def _apply(self, index: int, name: str, parameter: Tensor) -> None:
        """The hook: use a gradient and free it; a vector's stays for `finish`."""
        assert parameter.grad is not None
        gradient = local(parameter.grad).view(-1)
        if self._measuring or name not in self._vector_names:
            parameter.grad = None
        if not gradient.numel():  # more processes than rows
            return
        parts = gradient.split(CHUNK)
        square = self._squares[index]
        _add_squares(parts, square)
        if self._measuring or name not in self._parts:
            return
        if self.clip > 0:
            limit = self.clip * self._shares[index].sqrt()
            gradient.mul_((limit / (square.sqrt() + 1e-6)).clamp(max=1.0))
        optimizer = self._optimizers[name]
        for mine, part in zip(self._parts[name], parts, strict=True):
            mine.grad = part
        with _stance(parameter):
            optimizer.step()
        for mine in self._parts[name]:
            mine.grad = None

    def _moments(self) -> dict[str, list[Tensor]]:
        """By parameter: the tensors behind the moments of its chunks, in their order."""
        found: dict[str, list[Tensor]] = {}
        for name, optimizer in self._optimizers.items():
            parts = [optimizer.state[part] for part in self._parts[name]]
            found[name] = [t for held in parts for key in MOMENTS for t in _inner(held[key])]
        return found

    def _step_of(self, name: str) -> float:
        return float(self._optimizers[name].state[self._parts[name][0]]["step"])


def _add_squares(parts: Sequence[Tensor], square: Tensor) -> None:
    """Into `square`, float32 [], the squared length of a vector that is given in parts."""
    if len(parts) == 1:
        torch.linalg.vector_norm(parts[0], dtype=torch.float32, out=square)
        square.square_()
    else:
        lengths = [torch.linalg.vector_norm(part, dtype=torch.float32) for part in parts]
        square.copy_(torch.stack(lengths).square().sum())


def _chunks(parameter: nn.Parameter) -> list[nn.Parameter]:
    """Views of a parameter, or of this process's part of it, flat, of at most `CHUNK` elements each."""
    return [nn.Parameter(part) for part in local(parameter.detach()).view(-1).split(CHUNK)]


def _optimizer_class(name: str) -> Any:
    """torchao's AdamW of a recipe's `optimizer`."""
    try:
        from torchao import optim
    except ImportError as error:
        raise UnavailableError(f'train.optimizer = "{name}" needs torchao: pip install torchao') from error
    return {"adamw_8bit": optim.AdamW8bit, "adamw_4bit": optim.AdamW4bit}[name]


@torch.no_grad()
def _make_moments(optimizer: Any) -> None:
    """Make the moments now, by a step that moves nothing: rate and gradients are zero. So memory runs out before
    training rather than in it, the kernels are compiled outside backward, and a checkpoint has a place to go to."""
    for part in optimizer.param_groups[0]["params"]:
        part.grad = torch.zeros_like(part)
        with _stance(part):
            optimizer.step()
        part.grad = None
        optimizer.state[part]["step"].zero_()


def _stance(parameter: Tensor) -> Any:
    """torchao compiles a step for each shape. That pays for large parameters on a GPU; the others are stepped eagerly."""
    small = parameter.numel() < COMPILED or parameter.device.type == "cpu"
    return torch.compiler.set_stance("force_eager") if small else nullcontext()


def _inner(moment: Tensor) -> list[Tensor]:
    """The tensors behind one of torchao's: codes and scales. A small parameter's moment is a plain tensor."""
    if not hasattr(moment, "__tensor_flatten__"):
        return [moment]
    return [moment.codes, moment.scale]  # type: ignore[attr-defined]  # torchao's OptimState8bit and OptimState4bit
