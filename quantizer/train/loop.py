"""The training loop, to be read from top to bottom.

One step: the gradients of its micro-batches add up, are clipped, and move the masters; the model's weights are rounded from these,
and once more to what will be served. After every `refresh` steps the scales follow the weights: blocks that outgrow a frozen amax
would saturate. All that the next step depends on is in `state`.
"""

import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor, nn

from quantizer.core.batch import to_device
from quantizer.core.errors import QuantizerError
from quantizer.core.shard import World
from quantizer.data.batches import Step, batches, collate, plan
from quantizer.data.render import TrainingSample
from quantizer.layers.linear import nvfp4_layers
from quantizer.recipes.recipe import Train
from quantizer.train.curves import Curves
from quantizer.train.head import Loss
from quantizer.train.learner import WIDTHS, Learner, Micro, Teacher, micro
from quantizer.train.optimizer_in_backward import OptimizerInBackward
from quantizer.train.weights import MasterOptimizer, Weights, learning_rate

FLUSH = 10
"""Steps between two looks at the GPU's numbers: each look waits for it."""
Log = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Record:
    """One optimizer step. loss, ce, kl: means over the assistant's tokens of the step, before it. length: of the
    gradient before clipping. tokens: padded ones. seconds: since the run began, earlier parts of it included."""

    step: int
    loss: float
    ce: float
    kl: float
    length: float
    lr: float
    tokens: int
    seconds: float


class Trainer:
    """A run over samples. weights: what moves, if not every parameter that has a gradient. refresh: makes the scales
    follow the weights. hold: rounds the weights for the next step; not called where they
    are sharded, for then compiled blocks round what they gather."""

    def __init__(
        self,
        learner: Learner,
        samples: Sequence[TrainingSample],
        pad: int,
        settings: Train,
        *,
        weights: Weights | OptimizerInBackward | None = None,
        teacher: Teacher | None = None,
        refresh: Callable[[], None] | None = None,
        hold: Callable[[nn.Module], None] | None = None,
        world: World | None = None,
    ) -> None:
        self.learner, self.samples, self.pad, self.settings = learner, samples, pad, settings
        self.teacher, self.world = teacher, world or World()
        self._refresh, self._hold = refresh, hold
        self._widths = [-(-len(sample.ids) // WIDTHS) * WIDTHS for sample in samples]
        self.steps = self._planned()
        self.weights = weights or moved_by(settings, trained(learner.model), self.world)
        if isinstance(self.weights, Weights):
            self.optimizer: MasterOptimizer | OptimizerInBackward = MasterOptimizer(self.weights, settings)
        else:
            self.optimizer = self.weights
        self.device = next(learner.parameters()).device
        self.step = 0
        self.records: list[Record] = []
        self.curves: Curves | None = None
        self._pending: list[tuple[int, Tensor, float, int]] = []
        self._began, self._before = time.perf_counter(), 0.0

    def run(self, log: Log, save: Callable[[], None] | None = None) -> list[Record]:
        """To the end of the plan. Raises QuantizerError if the loss is no number any more."""
        self.learner.train()
        self._began, self._before = time.perf_counter(), self.records[-1].seconds if self.records else 0.0
        self.hold()
        while self.step < len(self.steps):
            self._one(self.steps[self.step])
            last = self.step == len(self.steps)
            if last or self.settings.refresh and self.step % self.settings.refresh == 0:
                self.refresh()
            self.hold()
            if last or self.step % FLUSH == 0 or self.step % self.settings.save == 0:
                self._flush(log)
            if save and (last or self.step % self.settings.save == 0):
                save()
        self.learner.eval()
        return self.records

    def refresh(self) -> None:
        """Make the scales follow the weights."""
        if self._refresh:
            self._refresh()

    def hold(self) -> None:
        """Round the weights for all forwards until the next step."""
        if self._hold and self.world.size == 1:
            self._hold(self.learner.model)

    def _one(self, step: Step) -> None:
        lr = learning_rate(self.step, len(self.steps), self.settings)
        count = self._learned(i for chosen in step for i in chosen)
        mine = step[self.world.rank :: self.world.size]
        if not self.optimizer.measured:
            with self.optimizer.measuring():
                for chosen in mine:
                    self._backward(chosen, count)
        self.optimizer.begin(lr)
        found = [self._backward(chosen, count) for chosen in mine]
        length = self.optimizer.finish()
        sums = torch.stack([*torch.stack(found).sum(dim=0), length])
        tokens = sum(len(chosen) * max(self._widths[i] for i in chosen) for chosen in step)
        self._pending.append((self.step, sums, lr, tokens))
        self.step += 1

    def _backward(self, chosen: Sequence[int], count: int) -> Tensor:
        """Gradients of a micro-batch into the masters; its share of the step's loss, ce and kl: float32 [3]."""
        loss = self._forward(chosen, count)
        (loss.total * self.world.size).backward()  # sharded gradients are means over the machines
        self.optimizer.collect()
        return torch.stack(loss).detach()

    def _forward(self, chosen: Sequence[int], count: int) -> Loss:
        one = micro(collate(self.samples, chosen, self.pad, WIDTHS))
        one = Micro(*(to_device(tensor, self.device) for tensor in one))
        taught = self.teacher.at(chosen, self.device) if self.teacher else None
        return self.learner(*one, count, taught)  # type: ignore[no-any-return]

    def _learned(self, chosen: Iterable[int]) -> int:
        return sum(int(self.samples[i].learned.sum()) for i in chosen)

    @torch.no_grad()
    def evaluate(self, tokens: int = 65_536) -> float:
        """The mean loss over some samples of all lengths, so many padded tokens of them, as the model is now."""
        made = batches(self._widths, self.settings.micro_tokens)
        many = max(1, tokens // self.settings.micro_tokens)
        made = made[:: max(1, len(made) // many)][:many]  # of all lengths
        count = self._learned(i for chosen in made for i in chosen)
        return float(sum(self._forward(chosen, count).total for chosen in made))

    def _flush(self, log: Log) -> None:
        """Take the numbers of the last steps from the device, and log the newest."""
        if not self._pending:
            return
        sums = self.world.total(torch.stack([sums for _, sums, _, _ in self._pending])).tolist()
        seconds = self._before + time.perf_counter() - self._began
        for (step, _, lr, tokens), (loss, ce, kl, length) in zip(self._pending, sums, strict=True):
            if not math.isfinite(loss + length):
                raise QuantizerError(
                    f"step {step + 1}: the loss is {loss}; train with a smaller lr than {lr:g}"
                )
            length /= self.world.size
            self.records.append(Record(step + 1, loss, ce, kl, length, lr, tokens, round(seconds, 3)))
            if self.curves:
                self.curves.add(step + 1, {"loss": loss, "ce": ce, "kl": kl, "length": length, "lr": lr})
        speed = sum(tokens for *_, tokens in self._pending) / max(seconds - self._last_seconds(), 1e-9)
        left = seconds / self.step * (len(self.steps) - self.step)
        log(
            f"step {self.step}/{len(self.steps)} loss {sums[-1][0]:.4f} {speed:,.0f} tokens/s {seconds:.0f} s, "
            f"about {left:.0f} s left"
        )
        self._pending = []

    def _last_seconds(self) -> float:
        """When the steps before the pending ones had been logged."""
        known = len(self.records) - len(self._pending)
        return self.records[known - 1].seconds if known else 0.0

    def _planned(self) -> list[Step]:
        settings = self.settings
        steps = plan(
            self._widths,
            batch_tokens=settings.batch_tokens,
            micro_tokens=settings.micro_tokens,
            epochs=settings.epochs,
            seed=settings.seed,
            share=self.world.size,
        )
        if settings.optimizer != "adamw":  # a micro-batch that is left over shares no step with another
            share = self.world.size
            steps = [step[at : at + share] for step in steps for at in range(0, len(step), share)]
        return steps[: settings.max_steps or None]

    # ------------------------------------------------------------------------------------- to go on

    def state(self) -> dict[str, Any]:
        """All that the next step depends on, as tensors and plain values; of this machine's shards."""
        self._flush(lambda text: None)
        return {
            "step": self.step,
            **self.optimizer.state(),
            "scales": _scales(self.learner.model),
            "random": _random_state(),
            "records": [asdict(record) for record in self.records],
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on where a state was taken. The model and the samples are those of that run."""
        self.optimizer.restore(state)
        _set_scales(self.learner.model, state["scales"])
        _set_random_state(state["random"])
        self.records = [Record(**record) for record in state["records"]]
        self.step = state["step"]


def trained(model: nn.Module) -> list[tuple[str, nn.Parameter]]:
    """The parameters that have a gradient, by name."""
    return [(name, parameter) for name, parameter in model.named_parameters() if parameter.requires_grad]


def moved_by(
    settings: Train, named: list[tuple[str, nn.Parameter]], world: World | None = None
) -> Weights | OptimizerInBackward:
    """What moves the trained parameters, as the recipe's `optimizer` wants it."""
    return Weights(named) if settings.optimizer == "adamw" else OptimizerInBackward(named, settings, world)


def _scales(model: nn.Module) -> dict[str, dict[str, Tensor]]:
    """The scales that no optimizer moves, by layer."""
    parts = ("weight_amax", "input_amax", "weight_scale")
    return {
        name: {part: value for part in parts if (value := getattr(layer, part)) is not None}
        for name, layer in nvfp4_layers(model).items()
    }


@torch.no_grad()
def _set_scales(model: nn.Module, scales: Mapping[str, Mapping[str, Tensor]]) -> None:
    for name, layer in nvfp4_layers(model).items():
        for part, value in scales[name].items():
            getattr(layer, part).copy_(value)


def _random_state() -> dict[str, Any]:
    cuda = torch.cuda.get_rng_state() if torch.cuda.is_available() else None
    return {"cpu": torch.get_rng_state(), "cuda": cuda}


def _set_random_state(state: Mapping[str, Any]) -> None:
    torch.set_rng_state(state["cpu"])
    if state["cuda"] is not None:
        torch.cuda.set_rng_state(state["cuda"])
