"""Compare our AWQ-lite (one pass for Gram matrices, then search and fold) with ModelOpt's search on one GPU.

Both use the same model, batches and alphas.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Sequence
from typing import Any, Final

import torch
from torch import nn

from quantizer.core.batch import Batch, hidden_states
from quantizer.experiments.bench.model import wait
from quantizer.layers.attach import attach, make_plan
from quantizer.ptq.awq import search
from quantizer.ptq.calibrate import observe, set_input_amax
from quantizer.ptq.fold import fold_awq, foldable, probe
from quantizer.recipes.recipe import Layers

STEP: Final = 0.1  # of alpha, from 0 to 1, as ModelOpt's NVFP4_AWQ_LITE_CFG


def compare(build: Callable[[], nn.Module], batches: Sequence[Batch]) -> dict[str, Any]:
    """Seconds of both after a warm-up of ours on one batch; the number of layers with a scale of their own for
    which both chose the same alpha; and what ModelOpt's other choices cost."""
    _ours(build(), batches[:1])  # warm-up
    ours, passed, searched = _ours(build(), batches)
    found: dict[str, Any] = {
        "tokens": sum(batch.ids.numel() for batch in batches),
        "ours, s": passed + searched,
        "ours, the pass over the data, s": passed,
    }
    try:
        theirs, seconds = _theirs(build(), batches)
    except (
        ImportError,
        RuntimeError,
        AttributeError,
    ) as error:  # ModelOpt is missing, or does not support this machine
        return found | {"ModelOpt": f"{type(error).__name__}: {error}"[:300]}
    alone = {readers[0]: alpha for readers, alpha in ours if len(readers) == 1}
    chosen = {name: theirs[name] for name in alone if name in theirs}
    same = [abs(alone[name] - alpha) < STEP / 2 for name, alpha in chosen.items()]
    return found | {
        "ModelOpt, s": seconds,
        "times as fast": seconds / found["ours, s"],
        "same alpha": sum(same),
        "layers": len(same),
        "theirs costs at most": _worst(build(), batches, chosen),
    }


def _ours(
    model: nn.Module, batches: Sequence[Batch]
) -> tuple[list[tuple[tuple[str, ...], float]], float, float]:
    """Readers and alpha of every scale; seconds of the pass over the data, and of search and fold."""

    def run() -> Any:
        return hidden_states(model, probe(batches[0]))

    def look() -> Any:
        attach(model, make_plan(model, Layers()))
        seen = observe(model, batches, foldable(model, run))
        set_input_amax(model, seen)
        return seen

    seen, passed = _timed(look)
    folded, searched = _timed(lambda: fold_awq(model, seen, run, STEP))
    return [(one.readers, one.alpha) for one in folded], passed, searched


def _theirs(model: nn.Module, batches: Sequence[Batch]) -> tuple[dict[str, float], float]:
    """Each layer's alpha, and seconds of `mtq.quantize`."""
    from quantizer.ptq import modelopt_cpu

    mtq: Any = modelopt_cpu.install()
    config = copy.deepcopy(mtq.NVFP4_AWQ_LITE_CFG)
    config["algorithm"] = {"method": "awq_lite", "alpha_step": STEP, "debug": True}

    def through(one: nn.Module) -> None:
        for batch in batches:
            hidden_states(one, batch)

    done, seconds = _timed(lambda: mtq.quantize(model, config, through))
    return {
        name: float(module.awq_lite.best_alpha)
        for name, module in done.named_modules()
        if getattr(getattr(module, "awq_lite", None), "best_alpha", None) is not None
    }, seconds


def _worst(model: nn.Module, batches: Sequence[Batch], chosen: dict[str, float]) -> float:
    """The largest ratio of the error at a layer's output under a chosen alpha to that under the best; 1 if all are
    the best."""
    layers = attach(model, make_plan(model, Layers()))
    seen = observe(model, batches, chosen)
    ratios = [1.0]
    for name, alpha in chosen.items():
        losses = search([layers[name].weight], seen[name], STEP).losses
        ratios.append(min(losses.items(), key=lambda one: abs(one[0] - alpha))[1] / min(losses.values()))
    return max(ratios)


def _timed(work: Callable[[], Any]) -> tuple[Any, float]:
    wait()
    began = time.perf_counter()
    with torch.no_grad():
        done = work()
    wait()
    return done, time.perf_counter() - began
