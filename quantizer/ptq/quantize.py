"""Quantization without training: from a recipe, a model folder and conversations to a sealed NVFP4 folder.

    open the source, load it, choose layers          an unknown architecture, a broken shard, a pattern without a match
    observe what the layers read                     one pass over the data
    fold AWQ's scales, find block scales, mix        as the recipe says
    write, check, compare, seal, rename              the checker of `quantizer.verify` and the parity of logits, or nothing

Whatever fails leaves nothing at the place of the result.
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
from quantizer.checkpoint.source import Source, load_model, open_source
from quantizer.core import cost
from quantizer.core.atomic_output import check_free, placed
from quantizer.core.batch import Batch
from quantizer.core.errors import ExportError, RecipeError, UnavailableError
from quantizer.data import batches as data_batches
from quantizer.data.dataset import Dataset, load
from quantizer.data.render import open_renderer
from quantizer.layers.attach import Plan, attach, make_plan
from quantizer.layers.linear import NVFP4Linear, nvfp4_layers
from quantizer.ptq import knapsack, sensitivity, svdquant
from quantizer.ptq.calibrate import Seen, observe, set_inputs
from quantizer.ptq.fold import fold_awq, foldable
from quantizer.ptq.parity import Parity, compare, served_model
from quantizer.ptq.scales import norm_of, set_scales
from quantizer.recipes.recipe import Recipe, plain
from quantizer.verify import values
from quantizer.verify.check import verify
from quantizer.verify.report import Fit

FORMAT: Final = "hf-nvfp4"
PROOF_SAMPLES: Final = 8
"""So many of the data's are compared, token by token, after an export."""
Track = Callable[[str, Sequence[Any]], Iterable[Any]]
"""Goes through something that takes long, and may show how far it is under a name."""


def quiet(name: str, items: Sequence[Any]) -> Iterable[Any]:
    """A Track that shows nothing."""
    return items


@dataclass
class Run:
    """One quantization in the course of being made. facts: what the artefact will say of it, as JSON values."""

    recipe: Recipe
    source: Source
    data: Dataset
    device: str
    scores: Path | None = None
    track: Track = quiet
    facts: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.cost = cost.Cost(self.device)

    def batches(self, samples: int | None = None) -> list[Batch]:
        """The data, or the first so many samples of it, shortest first."""
        chosen = tuple(islice(self.data.samples, samples))
        return list(data_batches.in_order(chosen, self.data.pad, self.recipe.calibrate.batch_tokens))


def run(
    recipe: Recipe, source: Path, data: Path, out: Path, *, now: datetime, device: str, track: Track = quiet
) -> Artefact:
    """Quantize a model; the manifest of the folder that `out` has become.

    source: a Hugging Face folder. data: conversations, JSONL. device: as torch names it. Raises QuantizerError: the
    recipe does not fit the model, the source or the data cannot be used, the result cannot be written or is not sound,
    or the recipe is one that ends in no folder.
    """
    if recipe.kind != "ptq":
        _refuse(recipe)
    check_free(out)
    scores = out.parent / f".{out.name}.scores.jsonl" if recipe.auto else None
    opened = open_source(source)
    job = Run(recipe, opened, _data(recipe, source, data), device, scores, track)
    model = quantize(job)
    with placed(out) as folder:
        with job.cost.part("export"):
            write_nvfp4(model, opened, folder)
        with job.cost.part("check"):
            moved = (
                recipe.backend == "auto_round"
            )  # the codes are learned, and the weights in memory made of them
            job.facts["check"] = prove(
                model, folder, job.batches(PROOF_SAMPLES), device, source if moved else None
            )
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


def quantize(job: Run) -> nn.Module:
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
        set_inputs(model, seen)
    if recipe.awq:
        with job.cost.part("awq"):
            _fold(job, model, seen)
    with job.cost.part("scales"):
        set_scales(model, recipe.weights.scales)
    if recipe.auto:
        with job.cost.part("auto"):
            _mix(job, model, plan)
    return model


def prove(
    model: nn.Module, folder: Path, batches: Sequence[Batch], device: str, source: Path | None = None
) -> dict[str, Any]:
    """Check a folder that was just written, and compare its logits with the model's; what was found, as JSON values.

    source: where the weights are that the signal to noise is against, if not the model's own. Raises ExportError if
    the folder is not sound, or computes something else than the model.
    """
    report = verify(folder, source)
    faults = [finding for finding in report.findings if finding.severity == "error"]
    if faults:
        raise ExportError(f"the exported folder is not sound, so it is not kept: {faults[0]}")
    parity = compare(model, served_model(folder, device), ((b.ids, b.attention) for b in batches))
    if not parity.holds:
        raise ExportError(f"the exported folder computes something else than the model: {_differs(parity)}")
    fit = report.fit or sum((fit_of(layer) for layer in nvfp4_layers(model).values()), Fit())
    return {"layers": len(report.layers), "sqnr_db": round(fit.sqnr_db, 3), "parity": asdict(parity)}


def fit_of(layer: NVFP4Linear) -> Fit:
    """How near a layer's NVFP4 is to its master weight, which a fold may have moved away from the source's."""
    with torch.no_grad():
        return values.measure(layer.quantize(), layer.weight.float(), None)[0]


def report_svdquant(
    recipe: Recipe, source: Path, data: Path, device: str, track: Track = quiet
) -> list[svdquant.Saving]:
    """What a low-rank branch would save in each layer of a model. Raises QuantizerError."""
    assert recipe.svdquant is not None
    job = Run(recipe, open_source(source), _data(recipe, source, data), device, track=track)
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
    return load(data, open_renderer(source), max_tokens=limits.max_tokens, conversations=limits.conversations)


def _fold(job: Run, model: nn.Module, seen: dict[str, Seen]) -> None:
    settings = job.recipe.awq
    assert settings is not None
    folded = fold_awq(model, seen, job.batches(1)[0], settings.alpha_step, settings.least_gain)
    job.facts["awq"] = [asdict(one) | {"gain": round(one.gain, 4)} for one in folded]


def _mix(job: Run, model: nn.Module, plan: Plan) -> None:
    settings = job.recipe.auto
    assert settings is not None
    state = {"recipe": plain(job.recipe), "source": job.source.root, "data": job.data.digest}
    ledger, batches = sensitivity.Ledger(job.scores, state), job.batches(settings.samples)
    groups = sensitivity.score(
        model, plan.groups, batches, ledger, lambda some: job.track("scoring groups", some)
    )
    mix = knapsack.solve(groups, [settings.effective_bits])[0]
    tokens = sum(int(batch.foretelling.sum()) for batch in batches)
    sensitivity.keep_in_bf16(model, plan.groups, mix)
    if not nvfp4_layers(model):
        raise RecipeError(f"auto.effective_bits: {settings.effective_bits:g} keeps every layer in BF16")
    job.facts["auto"] = {
        "scored_tokens": tokens,
        "chosen": knapsack.as_row(mix, groups),
        "kept": [list(groups[index].layers) for index in mix.kept],
        "curve": [knapsack.as_row(point, groups) for point in knapsack.curve(groups)],
        "groups": [asdict(group) | {"divergence": round(group.divergence, 6)} for group in groups],
    }


def _origin(job: Run) -> Provenance:
    extra = {"modelopt": ["nvidia-modelopt"], "auto_round": ["auto-round"]}.get(job.recipe.backend, [])
    outcome = job.facts | {"data": job.data.facts()} | job.cost.facts()
    return Provenance(
        recipe={**plain(job.recipe), "outcome": outcome},
        data_digest=job.data.file_digest,
        tools=cost.tools(*extra),
    )


def _differs(parity: Parity) -> str:
    other = parity.tokens - parity.same_choice
    return (
        f"logits up to {parity.largest:.1f} roundings apart, another best token at {other} of {parity.tokens}"
    )
