"""Post-training quantization: from a recipe, a model folder and conversations to a sealed NVFP4 folder.

  open the source, load it, select layers          an unknown architecture, a damaged shard, a pattern without a match
  observe the inputs of the layers                 one pass over the data
  fold AWQ's scales, find block scales, mix        as the recipe says
  write, check, compare, seal, rename              the checks of `quantizer.verify` and the parity of logits

If any step fails, nothing is left at the output path.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime
from itertools import islice
from pathlib import Path
from typing import Any, Final

import torch
from torch import nn

from gates.artefact.manifest import Artefact, Provenance
from quantizer.checkpoint.export import seal, write_nvfp4
from quantizer.checkpoint.mtp import mtp_facts
from quantizer.checkpoint.source import Source, load_model, open_source
from quantizer.core import cost
from quantizer.core.atomic_output import atomic_folder, check_available
from quantizer.core.batch import Batch
from quantizer.core.errors import ExportError, RecipeError, UnavailableError
from quantizer.data import batches as data_batches
from quantizer.data.dataset import Dataset, load_dataset
from quantizer.data.render import open_renderer
from quantizer.layers.attach import LayerPlan, attach, make_plan
from quantizer.layers.linear import NVFP4Linear, nvfp4_layers
from quantizer.ptq import knapsack, sensitivity, svdquant
from quantizer.ptq.calibrate import InputStats, observe, set_input_amax
from quantizer.ptq.fold import fold_awq, foldable
from quantizer.ptq.parity import Parity, compare, served_model
from quantizer.ptq.scales import norm_of, set_scales
from quantizer.recipes.recipe import Recipe, recipe_as_json
from quantizer.verify import values
from quantizer.verify.check import verify
from quantizer.verify.report import RoundingStats

FORMAT: Final = "hf-nvfp4"
PARITY_SAMPLES: Final = 8
"""The number of samples that are compared, token by token, after an export."""
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
    scores: Path | None = None
    track: Track = no_progress
    facts: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.cost = cost.Cost(self.device)

    def batches(self, samples: int | None = None) -> list[Batch]:
        """The data in batches, shortest first. samples: only the first so many."""
        chosen = tuple(islice(self.data.samples, samples))
        return list(data_batches.in_order(chosen, self.data.pad, self.recipe.calibrate.batch_tokens))


def run(
    recipe: Recipe,
    source: Path,
    data: Path,
    out: Path,
    *,
    now: datetime,
    device: str,
    track: Track = no_progress,
) -> Artefact:
    """Quantize a model. Returns the manifest of the folder `out`.

    source: a Hugging Face folder. data: conversations, JSONL. device: a torch device. Raises QuantizerError if the
    recipe does not fit the model or has no folder as its result, the source or the data cannot be used, or the
    result cannot be written or is not sound.
    """
    if recipe.kind != "ptq":
        _refuse(recipe)
    check_available(out)
    scores = out.parent / f".{out.name}.scores.jsonl" if recipe.auto else None
    opened = open_source(source)
    job = QuantizationJob(recipe, opened, _data(recipe, source, data), device, scores, track)
    model = quantize(job)
    with atomic_folder(out) as folder:
        with job.cost.part("export"):
            write_nvfp4(model, opened, folder)
        with job.cost.part("check"):
            # AutoRound learns the codes, and the weights in memory were computed from them.
            reference = source if recipe.backend == "auto_round" else None
            job.facts["check"] = check_export(model, folder, job.batches(PARITY_SAMPLES), device, reference)
        made = seal(
            folder,
            name=opened.manifest.name if opened.manifest else source.resolve().name,
            format=FORMAT,
            source=opened,
            created=now,
            origin=_origin(job),
        )
    if scores:
        scores.unlink(missing_ok=True)
    return made


def quantize(job: QuantizationJob) -> nn.Module:
    """The model in memory, calibrated and searched as the recipe says."""
    recipe = job.recipe
    if recipe.backend == "modelopt":
        from quantizer.ptq import modelopt

        return modelopt.quantize(recipe, job.source, job.batches(), job.device, job.cost)
    if recipe.backend == "auto_round":
        from quantizer.ptq import auto_round

        return auto_round.quantize(recipe, job.source, job.data, job.device, job.cost)
    with job.cost.part("load"):
        model = load_model(job.source, device=job.device)
        plan = make_plan(model, recipe.layers)
        attach(model, plan, norm_of(recipe.weights.scales))
    with job.cost.part("calibrate"):
        searched = foldable(model, job.batches(1)[0]) if recipe.awq else ()
        seen = observe(model, job.track("calibrating", job.batches()), searched)
        set_input_amax(model, seen)
    if recipe.awq:
        with job.cost.part("awq"):
            _fold(job, model, seen)
    with job.cost.part("scales"):
        set_scales(model, recipe.weights.scales)
    if recipe.auto:
        with job.cost.part("auto"):
            _mix(job, model, plan)
    return model


def check_export(
    model: nn.Module, folder: Path, batches: Sequence[Batch], device: str, source: Path | None = None
) -> dict[str, Any]:
    """Check an exported folder and compare its logits with the model's. Returns the results as JSON values.

    source: the reference for the signal to noise ratio, if it is not the model's own weights. Raises ExportError if
    the folder is not sound, or computes something else than the model.
    """
    report = verify(folder, source)
    faults = [finding for finding in report.findings if finding.severity == "error"]
    if faults:
        raise ExportError(f"the exported folder is not sound, so it is not kept: {faults[0]}")
    parity = compare(model, served_model(folder, device), ((b.ids, b.attention) for b in batches))
    if not parity.holds:
        raise ExportError(f"the exported folder computes something else than the model: {_differs(parity)}")
    fit = report.fit or sum(
        (layer_rounding_stats(layer) for layer in nvfp4_layers(model).values()), RoundingStats()
    )
    return {"layers": len(report.layers), "sqnr_db": round(fit.sqnr_db, 3), "parity": asdict(parity)}


def layer_rounding_stats(layer: NVFP4Linear) -> RoundingStats:
    """How close a layer's NVFP4 is to its master weight, which a fold may have changed from the source's."""
    with torch.no_grad():
        return values.compare_weights(layer.quantize(), layer.weight.float(), None)[0]


def report_svdquant(
    recipe: Recipe, source: Path, data: Path, device: str, track: Track = no_progress
) -> list[svdquant.Saving]:
    """What a low-rank branch would save in each layer of a model. Raises QuantizerError."""
    assert recipe.svdquant is not None
    job = QuantizationJob(recipe, open_source(source), _data(recipe, source, data), device, track=track)
    model = load_model(job.source, device=device)
    attach(model, make_plan(model, recipe.layers))
    seen = observe(model, track("calibrating", job.batches()), nvfp4_layers(model))
    return svdquant.report(model, seen, recipe.svdquant.rank)


def _refuse(recipe: Recipe) -> None:
    if recipe.kind == "report":
        raise UnavailableError(svdquant.WHY_NOT)
    raise RecipeError(f"{recipe.name} trains: run it with manners quantize qat (or qad), not ptq")


def _data(recipe: Recipe, source: Path, data: Path) -> Dataset:
    limits = recipe.calibrate
    return load_dataset(
        data, open_renderer(source), max_tokens=limits.max_tokens, conversations=limits.conversations
    )


def _fold(job: QuantizationJob, model: nn.Module, seen: dict[str, InputStats]) -> None:
    settings = job.recipe.awq
    assert settings is not None
    folded = fold_awq(model, seen, job.batches(1)[0], settings.alpha_step, settings.least_gain)
    job.facts["awq"] = [asdict(one) | {"gain": round(one.gain, 4)} for one in folded]


def _mix(job: QuantizationJob, model: nn.Module, plan: LayerPlan) -> None:
    settings = job.recipe.auto
    assert settings is not None
    state = {"recipe": recipe_as_json(job.recipe), "source": job.source.root, "data": job.data.digest}
    ledger, batches = sensitivity.ScoreLog(job.scores, state), job.batches(settings.samples)
    groups = sensitivity.score(
        model, plan.groups, batches, ledger, lambda some: job.track("scoring groups", some)
    )
    mix = knapsack.solve(groups, [settings.effective_bits])[0]
    tokens = sum(int(batch.loss_mask.sum()) for batch in batches)
    sensitivity.keep_in_bf16(model, plan.groups, mix)
    if not nvfp4_layers(model):
        raise RecipeError(f"auto.effective_bits: {settings.effective_bits:g} keeps every layer in BF16")
    job.facts["auto"] = {
        "scored_tokens": tokens,
        "chosen": knapsack.point_as_json(mix, groups),
        "kept": [list(groups[index].layers) for index in mix.kept],
        "curve": [knapsack.point_as_json(point, groups) for point in knapsack.curve(groups)],
        "groups": [asdict(group) | {"divergence": round(group.divergence, 6)} for group in groups],
    }


def _origin(job: QuantizationJob) -> Provenance:
    extra = {"modelopt": ["nvidia-modelopt"], "auto_round": ["auto-round"]}.get(job.recipe.backend, [])
    mtp = mtp_facts(job.source, trained=False)
    outcome = job.facts | ({"mtp": mtp} if mtp else {}) | {"data": job.data.facts()} | job.cost.facts()
    return Provenance(
        recipe={**recipe_as_json(job.recipe), "outcome": outcome},
        data_digest=job.data.file_digest,
        tools=cost.tools(*extra),
    )


def _differs(parity: Parity) -> str:
    other = parity.tokens - parity.same_choice
    return (
        f"logits up to {parity.largest:.1f} roundings apart, another best token at {other} of {parity.tokens}"
    )
