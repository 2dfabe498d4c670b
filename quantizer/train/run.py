"""Training with the quantization in place: from a recipe, a model folder and conversations to a sealed folder.

    load the data, render it        nothing to learn in a row is an error with its line
    ask the teacher, if there is one    the folder's own model, once over the data; then it is let go
    open the student                loaded, calibrated, searched; see `quantizer.train.student`
    train                           with checkpoints beside the place of the result: NAME.training
    write, check, compare, seal, rename

The loss curve is in NAME.tensorboard while it grows; its summary, with time, memory and data, in the manifest.
"""

from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from gates.artefact import artefact
from gates.artefact.artefact import Artefact
from quantizer.checkpoint.export import write_bf16, write_nvfp4
from quantizer.checkpoint.source import Source, load_model, open_source, skeleton
from quantizer.core import shard
from quantizer.core.atomic_output import atomic_folder, check_available
from quantizer.core.checkpoint import Checkpoints
from quantizer.core.errors import RecipeError
from quantizer.core.shard import World
from quantizer.data.dataset import Dataset, load_dataset
from quantizer.data.render import open_renderer
from quantizer.ptq.quantize import Proof, QuantizationJob, check_export
from quantizer.recipes.recipe import Recipe, Train
from quantizer.train.curves import Curves
from quantizer.train.learner import Learner, Teacher, teacher_states
from quantizer.train.load import fill_shards
from quantizer.train.loop import Log, Record, Trainer
from quantizer.train.student import Student, alone, calibration_run, open_student

POINTS: Final = 100
"""Of the loss curve in the manifest."""


def run(
    recipe: Recipe,
    source: Path,
    data: Path,
    out: Path,
    *,
    now: datetime,
    device: str,
    resume: bool = False,
    bf16: Path | None = None,
    template: str | None = None,
    proof: Proof = "full",
    log: Log = print,
) -> Artefact:
    """Train a model by a recipe; the manifest of the folder that `out` has become. Raises QuantizerError.

    resume: go on from the checkpoints of the same run. bf16: where to put the trained weights before their rounding too. template: the text of a chat template in place of the folder's.
    Under torchrun every process calls this, and the first one writes.
    """
    settings = recipe.train
    if settings is None:
        raise RecipeError(f"{recipe.name} trains nothing: run it with manners quantize ptq")
    for place in filter(None, (out, bf16)):
        check_available(place)
    world = shard.join()
    if world.size > 1 and (recipe.lora or recipe.awq or recipe.auto or settings.trained == "scales"):
        raise RecipeError(
            "[lora], [awq], [auto] and learned scales train on one GPU; leave them out to shard"
        )
    log = log if world.rank == 0 else lambda text: None
    opened = open_source(source, template)
    recipe = _for_size_of(opened, recipe, log)
    samples = load_dataset(
        data, open_renderer(source, template), max_tokens=settings.max_tokens, thinking=settings.thinking
    )
    job = QuantizationJob(recipe, opened, samples, device, proof=proof)
    log(_summary(samples))
    saved = Checkpoints(out.with_name(f"{out.name}.training"), job.about, world)
    with shard.peers_watched(world):
        state = saved.begin(resume)
        trainer, student = _train(job, world, saved, state, log)
        finished = student if world.size == 1 else alone(student, job, world)
        if finished:
            finished.close()
            trainer.learner = finished.learner
            job.facts["train"]["loss_after"] = round(trainer.evaluate(), 6)
            _write(job, finished, out, bf16, now)
        saved.remove()
    return artefact.load(out)


def _for_size_of(source: Source, recipe: Recipe, log: Log) -> Recipe:
    """The recipe with the learning rate for this model, which is logged where the size decides."""
    if not (recipe.train and recipe.train.lr_up_to):
        return recipe
    parameters = sum(parameter.numel() for parameter in skeleton(source).parameters())
    chosen = recipe.for_size(parameters)
    assert chosen.train is not None
    log(f"learning rate {chosen.train.lr:g}, which {recipe.name} takes for {parameters:,} parameters")
    return chosen


def _train(
    job: QuantizationJob, world: World, saved: Checkpoints, state: dict[str, Any] | None, log: Log
) -> tuple[Trainer, Student]:
    settings = _settings(job)
    teacher = None
    if settings.loss != "ce":
        with job.cost.part("teacher"):
            teacher = _teacher(job, settings, saved.folder.parent, world)
    student = open_student(calibration_run(job), world)
    trainer = Trainer(
        student.learner,
        job.data.samples,
        job.data.pad,
        settings,
        weights=student.weights,
        teacher=teacher,
        refresh=student.follow,
        hold=student.hold,
        world=world,
    )
    if state:
        trainer.restore(state)
        log(f"going on after step {trainer.step} of {len(trainer.steps)}")
    before = state["before"] if state else _loss(trainer, student)
    if world.rank == 0:
        trainer.curves = Curves(saved.folder.with_suffix(".tensorboard"), trainer.step + 1)
    with job.cost.part("train"):
        trainer.run(log, lambda: saved.save({**trainer.state(), "before": before}))
    job.facts["train"] = {"loss_before": before, **summary(trainer.records)}
    return trainer, student


def _loss(trainer: Trainer, student: Student) -> float:
    """On some of the data, as the model is now; with no graph compiled for it."""
    with student.plainly():
        trainer.hold()
        return round(trainer.evaluate(), 6)


def _teacher(job: QuantizationJob, settings: Train, folder: Path, world: World) -> Teacher:
    """The folder's own model, run once and released. Its states are in a file in `folder`."""
    if world.size > 1:
        learner = Learner(skeleton(job.source), settings)
        shard.shard(learner, learner.model, world)
        fill_shards(learner, job.source, job.device)
    else:
        model = load_model(job.source, device=job.device)
        if settings.precision != "bf16":
            model.float()
        learner = Learner(model, settings)
    return teacher_states(learner, job.data.samples, job.data.pad, settings.micro_tokens, folder)


def _write(job: QuantizationJob, student: Student, out: Path, bf16: Path | None, now: datetime) -> None:
    """The folder, and the one of BF16 weights if it is asked for."""
    quantized = _settings(job).quantized
    if bf16 and quantized:
        _place(job, student, bf16, "hf-bf16", now)
    _place(job, student, out, "hf-nvfp4" if quantized else "hf-bf16", now)


def _place(job: QuantizationJob, student: Student, out: Path, format: str, now: datetime) -> None:
    with atomic_folder(out) as folder:
        with job.cost.part("export"):
            if format == "hf-bf16":
                write_bf16(student.model, job.source, folder)
            else:
                write_nvfp4(student.model, job.source, folder, kv_cache=job.recipe.kv_cache)
        if format == "hf-nvfp4":
            with job.cost.part("check"), student.plainly():
                job.facts["check"] = check_export(student.model, folder, job)
        job.seal(folder, format, now)


def summary(records: Sequence[Record]) -> dict[str, Any]:
    """What the manifest says of a training: the curve, thinned, and the whole in a few numbers."""
    tokens, seconds = sum(record.tokens for record in records), records[-1].seconds
    each = -(-len(records) // POINTS)
    curve = [[r.step, round(r.loss, 5), round(r.ce, 5), round(r.kl, 5)] for r in records[::each]]
    return {
        "steps": len(records),
        "first_loss": round(records[0].loss, 5),
        "last_loss": round(sum(r.loss for r in records[-10:]) / len(records[-10:]), 5),
        "tokens": tokens,
        "tokens_per_second": round(tokens / max(seconds, 1e-9), 1),
        "seconds": seconds,
        "curve": {"columns": ["step", "loss", "ce", "kl"], "rows": curve},
    }


def _summary(data: Dataset) -> str:
    dropped = "".join(f", {count} left out ({reason})" for reason, count in data.dropped.items())
    return (
        f"{data.conversations} conversations, {len(data.samples)} samples, {data.tokens:,} tokens, "
        f"{data.learned:,} of them the assistant's{dropped}"
    )


def _settings(job: QuantizationJob) -> Train:
    assert job.recipe.train is not None
    return job.recipe.train
