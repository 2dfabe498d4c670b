"""Post-training quantization: from a recipe, a model folder and conversations to a sealed NVFP4 folder.

    open the source, select layers       an unknown architecture, a damaged shard, a pattern without a match
    for each decoder layer in turn:      (`quantizer.ptq.by_layer`)
        load it, observe what its layers read, fold AWQ's scales, find block scales, write it, let it go
    check, compare, seal, rename         the checks of `quantizer.verify` and the parity of logits

A mix of precisions and AutoRound need the whole model on the device, and begin again after a kill; others have a checkpoint
after each layer. If a step fails, nothing is left at the output.
"""

import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from datetime import datetime
from importlib.util import find_spec
from itertools import islice
from pathlib import Path
from typing import Any, Final, Literal

import torch
from torch import nn

from gates.artefact.artefact import Artefact, Provenance
from quantizer.checkpoint.export import (
    plan_tensors,
    require_calibrated,
    seal,
    write_nvfp4,
    write_settings,
)
from quantizer.checkpoint.mtp import mtp_facts
from quantizer.checkpoint.shards import ShardWriter
from quantizer.checkpoint.source import Source, load_model, open_source
from quantizer.checkpoint.streamed import open_streamed
from quantizer.core import cost
from quantizer.core.atomic_output import atomic_folder, check_available
from quantizer.core.batch import Batch
from quantizer.core.checkpoint import Checkpoints
from quantizer.core.decoder import decoder_layers, head, layers_name
from quantizer.core.errors import DataError, ExportError, RecipeError, SourceError, UnavailableError
from quantizer.core.layerwise import Layerwise
from quantizer.data import batches as data_batches
from quantizer.data.dataset import Dataset, load_dataset
from quantizer.data.render import open_renderer
from quantizer.layers.attach import LayerPlan, detach, make_plan
from quantizer.layers.linear import NVFP4Linear, nvfp4_layers
from quantizer.ptq import sensitivity
from quantizer.ptq.by_layer import LayerJob
from quantizer.ptq.parity import Parity, compare, outputs, served_model
from quantizer.recipes.recipe import Recipe, recipe_as_json
from quantizer.verify import values
from quantizer.verify.check import verify
from quantizer.verify.report import CheckReport, RoundingStats

FORMAT: Final = "hf-nvfp4"
Proof = Literal["full", "sample", "none"]
PROVEN: Final[Mapping[str, int]] = {"full": 8, "sample": 1, "none": 0}
"""The number of conversations that are compared, token by token, after an export; without any, nothing is checked."""
BACKENDS: Final = {
    "manners": {},
    "auto_round": {"auto_round": "auto-round", "compressed_tensors": "compressed-tensors"},
}
"""The modules that each needs, and their packages."""
Track = Callable[[str, Sequence[Any]], Iterable[Any]]
"""Iterates over something that takes long, and may show its progress under a name."""


def no_progress(name: str, items: Sequence[Any]) -> Iterable[Any]:
    """A Track that shows nothing."""
    return items


@dataclass
class QuantizationJob:
    """One quantization in progress. facts: what the artefact will record about it, as JSON values."""

    recipe: Recipe
    source: Source
    data: Dataset
    device: str
    track: Track = no_progress
    facts: dict[str, Any] = field(default_factory=dict)
    base: Source | None = None
    proof: Proof = "full"

    def __post_init__(self) -> None:
        self.cost = cost.Cost(self.device)

    def batches(self, samples: int | None = None) -> list[Batch]:
        """The data in batches, shortest first. samples: only the first so many."""
        chosen = tuple(islice(self.data.samples, samples))
        return list(data_batches.in_order(chosen, self.data.pad, self.recipe.calibrate.batch_tokens))

    def proven(self) -> list[Batch]:
        """The conversations of the proof."""
        return self.batches(PROVEN[self.proof])

    def about(self) -> dict[str, Any]:
        """What makes a run this run, for its checkpoints."""
        return {
            "recipe": recipe_as_json(self.recipe),
            "source": self.source.root,
            "base": self.base and self.base.root,
            "data": self.data.digest,
            "device": self.device.partition(":")[0],
            "versions": cost.tools(),
        }

    def provenance(self) -> Provenance:
        """What the artefact records of how it was made."""
        mtp = mtp_facts(self.source, trained=self.recipe.train is not None)
        outcome = self.facts | ({"mtp": mtp} if mtp else {}) | {"data": self.data.facts()} | self.cost.facts()
        return Provenance(
            recipe={**recipe_as_json(self.recipe), "outcome": outcome},
            data_digest=self.data.file_digest,
            tools=cost.tools(*BACKENDS[self.recipe.backend].values()),
        )

    def seal(self, folder: Path, format: str, now: datetime) -> Artefact:
        """Write the manifest of the result."""
        manifest = self.source.manifest
        name = manifest.name if manifest else self.source.path.resolve().name
        origin = self.provenance()
        return seal(folder, name=name, format=format, source=self.source, created=now, origin=origin)


def run(
    recipe: Recipe,
    source: Path,
    data: Path,
    out: Path,
    *,
    now: datetime,
    device: str,
    track: Track = no_progress,
    base: Path | None = None,
    template: str | None = None,
    proof: Proof = "full",
    resume: bool = False,
) -> Artefact:
    """Quantize a model; the manifest of the folder `out`. Raises QuantizerError.

    `source`: a Hugging Face folder; `data`: conversations, JSONL; `base`: the model before its fine-tune, if the recipe needs it;
    `template`: the text of a chat template in place of the folder's; `resume`: go on from the checkpoints of the same run.
    """
    if recipe.kind == "train":
        raise RecipeError(f"{recipe.name} trains: run it with manners quantize qat (or qad), not ptq")
    check_available(out)
    opened = open_source(source, template)
    before = open_base(recipe, base)
    job = QuantizationJob(
        recipe, opened, _data(recipe, opened, data), device, track, base=before, proof=proof
    )
    saved = Checkpoints(out.with_name(f"{out.name}.training"), lambda: job.about() | {"proof": proof})
    state = saved.begin(resume)
    kept = saved.folder / "result" if recipe.streamed else None
    try:
        with atomic_folder(out, kept) as folder, ThreadPoolExecutor(1) as helper:
            about = helper.submit(lambda: saved.about)  # takes as long as reading the source once
            if kept:
                _stream(job, folder, state, lambda state: saved.save(state) if about.done() else None)
            else:
                _at_once(job, folder)
            about.result()
            with job.cost.part("seal"):
                made = job.seal(folder, FORMAT, now)
    except BaseException as error:
        refused = isinstance(error, (DataError, ExportError, SourceError)) and not error.__cause__
        if refused or not saved.newest():  # what is refused would be again
            saved.remove()
        raise
    saved.remove()
    return made


def require_packages(recipe: Recipe) -> None:
    """Raises UnavailableError if what does the work is not installed."""
    missing = [package for module, package in BACKENDS[recipe.backend].items() if find_spec(module) is None]
    if missing:
        raise UnavailableError(
            f"{recipe.name}: {recipe.backend} is not installed: pip install {' '.join(missing)}"
        )


def open_base(recipe: Recipe, base: Path | None) -> Source | None:
    """The model before its fine-tune, if the recipe asks for it. Raises RecipeError if it is not given, or not needed."""
    needed = bool(recipe.feedback and recipe.feedback.delta > 0)
    if base and not needed:
        raise RecipeError(f"{recipe.name}: has no use for a base; only [feedback] with delta has")
    if needed and not base:
        raise RecipeError(f"{recipe.name}: needs the model before its fine-tune: give --base DIR")
    return open_source(base) if base else None


def quantize(job: QuantizationJob) -> nn.Module:
    """The model in memory, calibrated and searched as the recipe says."""
    recipe = job.recipe
    if recipe.backend == "auto_round":
        from quantizer.ptq import auto_round

        return auto_round.quantize(recipe, job.source, job.data, job.device, job.cost)
    with job.cost.part("load"):
        model = load_model(job.source, device=job.device)
        plan = make_plan(model, recipe.layers)
    for _ in _layers(job, model, plan):
        pass
    if recipe.auto:
        with job.cost.part("auto"):
            _mix(job, model, plan)
    return model


def _at_once(job: QuantizationJob, folder: Path) -> None:
    """Quantize a model that is in memory as a whole, write it and check what was written."""
    model = quantize(job)
    with job.cost.part("export"):
        write_nvfp4(model, job.source, folder, kv_cache=job.recipe.kv_cache)
    with job.cost.part("check"):
        # AutoRound learns the codes, and the weights in memory were computed from them.
        reference = job.source.path if job.recipe.backend == "auto_round" else None
        job.facts["check"] = check_export(model, folder, job, reference)


def _stream(
    job: QuantizationJob,
    folder: Path,
    state: Mapping[str, Any] | None,
    save: Callable[[dict[str, Any]], None],
) -> None:
    """Quantize, write and check a model, one decoder layer after the other. state: of the last layer that was saved."""
    source, cost, done = job.source, job.cost, state["step"] if state else 0
    for path in set(folder.iterdir()) - set(folder.glob("*.safetensors") if state else ()):
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    with cost.part("load"):
        model = open_streamed(source, job.device)
        plan = make_plan(model, job.recipe.layers)
        groups = plan_tensors(model, source, plan.layers, job.recipe.weight_only)
        proof = Layerwise(model, [batch.to(job.device) for batch in job.proven()])
    fit = RoundingStats()
    with ShardWriter(folder, groups) as writer:
        if state:
            writer.skip(*state["written"])
            fit, proof.hidden = RoundingStats(**state["fit"]), [one.to(job.device) for one in state["hidden"]]
            job.facts |= state["facts"]
        with cost.part("export"):
            for _ in () if state else groups[: -len(decoder_layers(model))]:
                writer.write()
        for index in _layers(job, model, plan, source, done):
            if index < done:
                continue
            layer = decoder_layers(model)[index]
            with cost.part("export"):
                require_calibrated(nvfp4_layers(layer), f"{layers_name(model)}.{index}.")
                writer.write()
            with cost.part("check"):
                if proof.batches:
                    fit = sum((layer_rounding_stats(one) for one in nvfp4_layers(layer).values()), fit)
                for _ in proof.advance(index):
                    pass
            with cost.part("export"):
                proven = {"hidden": proof.hidden, "fit": asdict(fit), "facts": job.facts}
                save({"step": index + 1, "written": writer.done(), **proven})
        with cost.part("export"):
            write_settings(model, source, folder, plan.layers, job.recipe.kv_cache)
    if not proof.batches:
        job.facts["check"] = {"proof": job.proof, "layers": len(plan.layers)}
        return
    with cost.part("check"):
        report = _sound(folder, job.device)
        found = [proof.finish(number) for number in range(len(proof.batches))]
        served = served_model(folder, job.device, job.recipe.weight_only)
        job.facts["check"] = {"proof": job.proof} | _facts(
            report, fit, compare(found, head(model), served, proof.batches)
        )


def _layers(
    job: QuantizationJob, model: nn.Module, plan: LayerPlan, source: Source | None = None, done: int = 0
) -> Iterator[int]:
    """The numbers of the decoder layers, each when it is quantized. source: of layers that are not there yet; done: written before."""
    batches = [batch.to(job.device) for batch in job.batches()]
    steps = LayerJob(model, plan, batches, job.recipe, job.cost, job.facts, source, job.base, done).run()
    for _ in job.track("quantizing layers", decoder_layers(model)):
        yield next(steps)
    next(steps, None)  # lets the last one go


def check_export(
    model: nn.Module, folder: Path, job: QuantizationJob, source: Path | None = None
) -> dict[str, Any]:
    """Check an exported folder and compare its logits with the model's, as JSON values. Raises ExportError."""
    layers, device = nvfp4_layers(model).values(), job.device
    if job.proof == "none":
        return {"proof": job.proof, "layers": len(layers)}
    report = _sound(folder, device, source)
    fit = report.fit or sum((layer_rounding_stats(layer) for layer in layers), RoundingStats())
    served = served_model(folder, device, any(layer.weight_only for layer in layers))
    batches = [batch.to(device) for batch in job.proven()]
    parity = compare(outputs(model, batches), head(model), served, batches)
    return {"proof": job.proof} | _facts(report, fit, parity)


def _sound(folder: Path, device: str, source: Path | None = None) -> CheckReport:
    report = verify(folder, source, device=device)
    for finding in report.findings:
        if finding.severity == "error":
            raise ExportError(f"the exported folder is not sound, so it is not kept: {finding}")
    return report


def _facts(report: CheckReport, fit: RoundingStats, parity: Parity) -> dict[str, Any]:
    if not parity.holds:
        differs = f"logits up to {parity.largest:.1f} roundings apart, not equal at {parity.tokens - parity.equal} of {parity.tokens} tokens"
        raise ExportError(f"the exported folder computes something else than the model: {differs}")
    return {"layers": len(report.layers), "sqnr_db": round(fit.sqnr_db, 3), "parity": asdict(parity)}


def layer_rounding_stats(layer: NVFP4Linear) -> RoundingStats:
    """How close a layer's NVFP4 is to its master weight, which a fold may have changed from the source's."""
    if layer.fit:
        return layer.fit  # type: ignore[no-any-return]
    with torch.no_grad():
        return values.compare_weights(layer.quantize(), layer.weight.float())


def _data(recipe: Recipe, source: Source, data: Path) -> Dataset:
    limits = recipe.calibrate
    return load_dataset(
        data,
        open_renderer(source.path, source.template),
        max_tokens=limits.max_tokens,
        conversations=limits.conversations,
        seed=limits.seed,
    )


def _mix(job: QuantizationJob, model: nn.Module, plan: LayerPlan) -> None:
    settings = job.recipe.auto
    assert settings is not None
    batches = job.batches(settings.samples)
    groups = sensitivity.score(model, plan.groups, batches, lambda some: job.track("scoring groups", some))
    mix = sensitivity.solve(groups, settings.effective_bits)
    tokens = sum(int(batch.loss_mask.sum()) for batch in batches)
    detach(model, [name for index in mix.kept for name in plan.groups[index]])
    if not nvfp4_layers(model):
        raise RecipeError(f"auto.effective_bits: {settings.effective_bits:g} keeps every layer in BF16")
    job.facts["auto"] = {
        "scored_tokens": tokens,
        "chosen": {
            "bits": round(mix.bits, 4),
            "divergence": mix.divergence,
            "kept_groups": len(mix.kept),
            "kept_weights": sum(groups[index].weights for index in mix.kept),
        },
        "kept": [list(groups[index].layers) for index in mix.kept],
        "groups": [asdict(group) | {"divergence": round(group.divergence, 6)} for group in groups],
    }
