"""The model that is trained: from a folder to a module with the right parts frozen, and from there to what is served.

open      load, choose layers, calibrate, fold and search as `quantizer.ptq.quantize` does; then what this training moves
follow    after some steps: weights' amax again, tied, and the block scales of the recipe searched again
close     after the last: the same, inputs' amax again; BF16, nothing held
"""

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import nn

from quantizer.checkpoint.source import finish, load_model, skeleton
from quantizer.core.batch import Batch
from quantizer.core.decoder import decoder_layers
from quantizer.core.shard import World, gathered, shard, whole
from quantizer.layers.attach import attach, make_plan, refresh_weight_amax
from quantizer.layers.deltanet import use_chunks, use_own
from quantizer.layers.linear import SERVED_DTYPE, NVFP4Linear, drop_weights, hold_weights, nvfp4_layers
from quantizer.ptq.calibrate import calibrate
from quantizer.ptq.quantize import QuantizationJob, quantize
from quantizer.ptq.scales import norm_of, set_scales
from quantizer.recipes.recipe import Recipe, Train
from quantizer.train import lora
from quantizer.train.learner import Learner
from quantizer.train.load import fill_shards, wake
from quantizer.train.loop import moved_by, trained
from quantizer.train.optimizer_in_backward import OptimizerInBackward
from quantizer.train.speed import compile_blocks, compiled_hold, eager, recompute, share_inputs
from quantizer.train.weights import Weights


@dataclass
class Student:
    """learner: ready to be trained. weights: what moves. batches: what its inputs were calibrated with."""

    learner: Learner
    weights: Weights | OptimizerInBackward
    recipe: Recipe
    settings: Train
    batches: Sequence[Batch]
    compiled: bool

    @property
    def model(self) -> nn.Module:
        return self.learner.model

    @property
    def follows(self) -> bool:
        """Whether there are scales that have to follow weights."""
        return self.settings.quantized and self.settings.trained == "weights"

    def follow(self) -> None:
        """Take the weights' amax again and find their block scales again. A no-op where the weights stay."""
        if not self.follows:
            return
        with self.plainly():
            find_scales(self.model, self.recipe)

    def hold(self, model: nn.Module) -> None:
        """Round the weights once for all forwards until the next step; not where memory is short, for what is held is a
        second copy of them."""
        if self.settings.optimizer == "adamw":
            self._hold(model)

    def close(self) -> None:
        """Make it what is exported; its weights must be whole."""
        drop_weights(self.model)
        use_own(self.model)
        if self.settings.precision != "bf16":
            self.model.to(SERVED_DTYPE)
        with self.plainly():
            if self.follows:
                refresh_weight_amax(self.model)
                set_scales(self.model, self.recipe.weights.scales)
                calibrate(self.model, self.batches)

    def __post_init__(self) -> None:
        self._hold: Any = compiled_hold() if self.compiled else hold_weights

    def plainly(self) -> Any:
        """A `with` block in which nothing compiled runs: for what is done once, or compared to the bit."""
        return eager() if self.compiled else nullcontext()


def open_student(job: QuantizationJob, world: World) -> Student:
    """The model of a run's recipe, with its [train], on the run's device. Raises QuantizerError, as `ptq` does."""
    settings = job.recipe.train
    assert settings is not None
    if world.size > 1:
        return _open_sharded(job, world)
    model = quantize(job) if settings.quantized else load_model(job.source, device=job.device)
    if settings.precision != "bf16":
        model.float()
    names = list(nvfp4_layers(model)) or list(make_plan(model, job.recipe.layers).layers)
    adapters = lora.adapt(model, names, job.recipe.lora, settings.seed) if job.recipe.lora else None
    if settings.trained == "scales":
        model.requires_grad_(False)
        for layer in nvfp4_layers(model).values():
            layer.learn_scales()
    if settings.recompute:
        recompute(model, settings.kept_layers)
    learner = Learner(model, settings)
    return _student(learner, adapters, job, world, _compile(learner, job.device))


def _open_sharded(job: QuantizationJob, world: World) -> Student:
    """As `open_student`, with no more of the model in any process than its rows and one block."""
    recipe, settings = job.recipe, job.recipe.train
    assert settings is not None
    with job.cost.part("load"):
        model = skeleton(job.source)
        if settings.quantized:
            attach(model, make_plan(model, recipe.layers), norm_of(recipe.weights.scales), recipe.weight_only)
        if settings.recompute:
            recompute(model, settings.kept_layers)
        learner = Learner(model, settings)
        shard(learner, model, world)
        fill_shards(learner, job.source, job.device)
        wake(learner)
    if settings.quantized:
        with job.cost.part("calibrate"), whole(learner):
            calibrate(model, job.batches())
        with job.cost.part("scales"):
            find_scales(model, recipe)
    return _student(learner, None, job, world, _compile(learner, job.device))


def find_scales(model: nn.Module, recipe: Recipe) -> None:
    """Take the amax of every weight again and find its block scales, with one whole block at a time."""
    for block in decoder_layers(model):
        with whole(block):
            refresh_weight_amax(block)
            set_scales(block, recipe.weights.scales)


def _compile(learner: Learner, device: str) -> bool:
    """Give a learner on a GPU its kernels; whether its blocks are compiled."""
    if torch.device(device).type != "cuda":
        return False
    use_chunks(learner.model, compiled=learner.settings.compile)
    if not learner.settings.compile:
        return False
    share_inputs(learner.model)
    compile_blocks(learner.model)
    learner.compiled = True
    return True


def _student(
    learner: Learner, adapters: Weights | None, job: QuantizationJob, world: World, compiled: bool
) -> Student:
    settings = job.recipe.train
    assert settings is not None
    weights = adapters or moved_by(settings, trained(learner.model), world)
    batches = job.batches() if settings.quantized else []
    return Student(learner, weights, job.recipe, settings, batches, compiled)


def alone(student: Student, job: QuantizationJob, world: World) -> Student | None:
    """A student that was sharded, whole again in the first process, without a trace of the others; None in those."""
    state, before = gathered(student.model, world.rank == 0), nvfp4_layers(student.model)
    if world.rank:
        return None
    model = skeleton(job.source)
    for name, old in before.items():
        layer = NVFP4Linear(model.get_submodule(name), old.norm, old.weight_only)  # type: ignore[arg-type]
        model.set_submodule(name, layer)
        layer.fix_scales(old.weight_scale)
    model.load_state_dict(state, assign=True)
    learner = Learner(finish(model, job.device), student.settings)
    return replace(student, learner=learner, compiled=False)


def calibration_run(job: QuantizationJob) -> QuantizationJob:
    """The same run with so much of its data as calibration takes."""
    limits = job.recipe.calibrate
    some = replace(job, data=job.data.drawn(limits.conversations, limits.seed))
    job.facts["calibration"] = {
        name: some.data.facts()[name] for name in ("samples", "rendered", "seed", "kinds")
    }
    some.cost = job.cost
    return some
