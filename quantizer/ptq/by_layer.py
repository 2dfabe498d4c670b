"""Quantize a model one decoder layer at a time: all batches go through a layer before the next one is loaded.

A layer is calibrated on the inputs that the unquantized model gives it.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from torch import nn

from quantizer.checkpoint.source import Source, fill
from quantizer.core.batch import Batch
from quantizer.core.cost import Cost
from quantizer.core.decoder import decoder_layers, layers_name
from quantizer.core.errors import DataError, RecipeError
from quantizer.core.layerwise import Layerwise
from quantizer.layers.attach import LayerPlan, attach
from quantizer.layers.deltanet import chunked
from quantizer.layers.linear import nvfp4_layers, unquantized
from quantizer.ptq.calibrate import set_input_amax, watch
from quantizer.ptq.feedback import deltas_of, round_with_feedback, weigh_by_delta
from quantizer.ptq.fold import fold_awq, foldable, probe
from quantizer.ptq.scales import norm_of, set_scales
from quantizer.recipes.recipe import Recipe


@dataclass
class LayerJob:
    """The work on each decoder layer. `model`: whole, or from `open_streamed`; its layers are then loaded from `source`."""

    model: nn.Module
    plan: LayerPlan
    batches: Sequence[Batch]
    recipe: Recipe
    cost: Cost
    facts: dict[str, Any]
    source: Source | None = None
    base: Source | None = None
    done: int = 0  # so many layers were written by an earlier run: data only goes through them

    def run(self) -> Iterator[int]:
        """Yield the number of each decoder layer once it is calibrated and searched; it is there until the next step. Raises DataError."""
        if not self.batches:
            raise DataError("there is no conversation to calibrate with")
        outside = [name for name in self.plan.layers if not name.startswith(f"{layers_name(self.model)}.")]
        if outside:
            raise RecipeError(f"layers: {outside[0]} is outside of the decoder layers: add it to exclude")
        with self.cost.part("calibrate"):
            data = Layerwise(self.model, self.batches)
            asked = Layerwise(self.model, [probe(self.batches[0])])
        for index, layer in enumerate(decoder_layers(self.model)):
            self._quantize(index, layer, data, asked)
            yield index
            if self.source:
                layer.to("meta")

    def _quantize(self, index: int, layer: nn.Module, data: Layerwise, asked: Layerwise) -> None:
        recipe, prefix = self.recipe, f"{layers_name(self.model)}.{index}."
        plan = self.plan.within(prefix)
        with self.cost.part("load"):
            if self.source:
                fill(layer, self.source.folder, self.source.names, data.hidden[0].device, prefix)
            attach(layer, plan, norm_of(recipe.weights.scales), recipe.weight_only)
        with self.cost.part("calibrate"), unquantized(layer):
            following = asked.output(index)
        if not plan.layers:
            with self.cost.part("calibrate"), chunked(layer):
                for _ in data.advance(index):
                    pass
        elif index < self.done:
            with self.cost.part("calibrate"):
                watch(layer, data.advance(index), prefix=prefix)
        else:
            self._calibrate(layer, prefix, data.advance(index), lambda: asked.output(index))
        asked.hidden = [following]

    def _calibrate(
        self, layer: nn.Module, prefix: str, run: Iterator[Batch], forward: Callable[[], Any]
    ) -> None:
        recipe = self.recipe
        with self.cost.part("load"):
            deltas = deltas_of(layer, self.base, prefix) if self.base else {}
        weigh = weigh_by_delta(deltas, recipe.feedback.delta) if recipe.feedback and deltas else None
        with self.cost.part("calibrate"):
            gram = nvfp4_layers(layer) if recipe.feedback else foldable(layer, forward) if recipe.awq else ()
            seen = watch(layer, run, gram, prefix, weigh)
            set_input_amax(layer, seen, prefix)
        if recipe.awq:
            with self.cost.part("awq"):
                folded = fold_awq(layer, seen, forward, recipe.awq, prefix)
                found = self.facts.setdefault("awq", [])
                found += [asdict(one) | {"gain": round(one.gain, 4)} for one in folded]
        with self.cost.part("scales"):
            set_scales(layer, recipe.weights.scales)
        if recipe.feedback:
            round_with_feedback(layer, seen, recipe.feedback.damping, self.cost)
