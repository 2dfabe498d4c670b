"""Check before a study that CUDA graphs compute the same as eager execution, and measure how much faster they are."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Any, Final

import numpy as np
import torch

from quantizer.data.batches import collate
from quantizer.data.render import TrainingSample
from quantizer.experiments.nano.recipe import ModelShape
from quantizer.experiments.nano.train import build_model
from quantizer.experiments.study.decode import greedy
from quantizer.experiments.study.graph import Graphs
from quantizer.experiments.study.learn import Loop, said
from quantizer.experiments.study.packs import packs, shuffled
from quantizer.layers.attach import attach, make_plan
from quantizer.layers.linear import hold_weights
from quantizer.ptq.calibrate import calibrate
from quantizer.recipes.recipe import Layers, Train
from quantizer.train.learner import Learner

STEPS: Final = 16
NEAR: Final = 0.03
"""Relative tolerance of the loss: sums on a GPU differ from run to run."""


def check(shape: ModelShape, tokens: int, device: str, steps: int = STEPS) -> dict[str, Any]:
    """Compare both. right: whether losses agree and recording worked. Times are ms per step in the second half."""
    found: dict[str, Any] = {"device": device}
    curves = {}
    for kind in ("base", "qad"):
        for graphs in (False, True):
            name = f"{kind}{', graphs' if graphs else ''}"
            curves[name], found[f"{name}, ms"] = _trained(kind, shape, tokens, device, graphs, steps)
        pairs = zip(curves[kind], curves[f"{kind}, graphs"], strict=True)
        found[f"{kind}, off by"] = max(abs(a - b) / max(abs(a), 1e-3) for a, b in pairs)
    model = _model(shape, device)
    prompts = [list(range(5, 25 + i)) for i in range(40)]
    texts: list[list[list[int]]] = []
    for graphs in (False, True):
        decode = partial(greedy, model, prompts, pad=0, end=-1, most=48, graphs=graphs)
        found[f"decode{', graphs' if graphs else ''}, ms"] = 1000 * _timed(lambda: texts.append(decode()))  # noqa: B023
    same = [a == b for a, b in zip(*texts, strict=True)]
    found |= {"same replies": sum(same), "replies": len(same), "failed": Graphs.failed}
    near = all(found[f"{kind}, off by"] < NEAR for kind in ("base", "qad"))
    found["right"] = bool(near and sum(same) >= 0.9 * len(same) and not Graphs.failed)
    return found


def _model(shape: ModelShape, device: str) -> Any:
    model: Any = build_model(shape, 1, 0, 1)
    return model.to(device, torch.bfloat16)


def _trained(
    kind: str, shape: ModelShape, tokens: int, device: str, graphs: bool, steps: int
) -> tuple[list[float], float]:
    """Losses, and ms per step."""
    rng = np.random.default_rng(1)
    samples = [
        TrainingSample(rng.integers(2, 200, size).astype(np.int32), np.arange(size) > size // 2)
        for size in rng.integers(40, 250, max(8, 2 * tokens // 150))
    ]
    made = [pack.to(device) for pack in packs(samples, tokens, 0, 1, every=kind == "base")]
    order, model = shuffled(made, steps, 1), _model(shape, device)
    if kind == "base":
        settings = Train(lr=1e-3, precision="autocast", quantized=False, compile=False)
        loop = Loop(Learner(model.float(), settings), made, order, settings, graphs=graphs)
    else:
        settings = Train(lr=2e-4, loss="kl", compile=False)
        learner = Learner(model, settings)
        taught, head = said(learner, made), model.lm_head.weight.detach().clone()
        attach(model, make_plan(model, Layers()))
        calibrate(model, [collate(samples, range(8), 0)])
        loop = Loop(
            learner, made, order, settings, taught=taught, head=head, hold=hold_weights, graphs=graphs
        )
    half = steps // 2
    loop.order = order[:half]
    loop.run()
    loop.order = order[half:]
    seconds = _timed(loop.run)
    return [float(loss) for loss in loop.losses], 1000 * seconds / (steps - half)


def _timed(work: Callable[[], Any]) -> float:
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    began = time.perf_counter()
    work()
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return time.perf_counter() - began
