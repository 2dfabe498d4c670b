"""Benchmark our training against a plain loop on one GPU: tokens/s, peak memory, and the losses step by step.

  python -m quantizer.experiments.bench [--only NAME ...] [--json FILE] [--budget SECONDS]

The model is a random Qwen3 of 0.47 billion parameters; a batch has 8 rows of 2048 random tokens, of which 27 % are
the assistant's (the share in real conversations with the assistant). "plain" is a typical transformers loop:
float32 weights, bf16 autocast, labels passed to the model, fused AdamW. Every subject makes the same steps over the
same rows. The first half of the steps is warm-up, including compilation and calibration; the second half is timed.
The most important parts run first, AWQ's searches among them. Results are written after each part, and a part that
fails does not stop the others.
"""

from __future__ import annotations

import argparse
import gc
import json
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Final

import torch
import torch._dynamo
from torch import nn

from quantizer.core.cost import default_device, device_name
from quantizer.data.batches import collate
from quantizer.data.render import TrainingSample
from quantizer.experiments.bench.awq import compare
from quantizer.experiments.bench.model import (
    TINY,
    WHOLE,
    BenchResult,
    Size,
    build,
    plain_loop,
    rows,
    table,
    wait,
)
from quantizer.layers.attach import attach, make_plan
from quantizer.layers.linear import hold_weights, nvfp4_layers
from quantizer.ptq.calibrate import calibrate
from quantizer.recipes.recipe import Layers, Train
from quantizer.train.learner import Learner, teacher_states
from quantizer.train.loop import Record, Trainer
from quantizer.train.speed import KEPT, Hold, compile_blocks, recompute, share_inputs

SETTINGS: Final = Train(lr=1e-4, warmup=0.0, schedule="constant", epochs=1)
SHARE: Final = 0.27


@dataclass(frozen=True, slots=True)
class Subject:
    """One row of the table. plain: transformers' loop around the same model. share: of tokens that are learned.
    kept: see `speed.KEPT`. mixed: rows of 256 to 2048 tokens, so that no two batches have the same shape."""

    name: str
    settings: Train
    plain: bool = False
    share: float = SHARE
    kept: float = KEPT
    mixed: bool = False


def _subjects() -> list[Subject]:
    sft, qat = replace(SETTINGS, quantized=False), SETTINGS
    eager: dict[str, Any] = {"precision": "autocast", "compile": False}
    return [
        Subject("plain sft", replace(sft, **eager), plain=True),
        Subject("qat", qat),
        Subject("qad", replace(qat, loss="kl")),
        Subject("plain qat", replace(qat, **eager), plain=True),
        Subject("sft", sft),
        Subject("sft, autocast", replace(sft, precision="autocast")),
        Subject("qad, lr 1e-6", replace(qat, loss="kl", lr=1e-6)),
        Subject("qat, rows of all lengths", qat, mixed=True),
        *(Subject(f"qat, {kept:.0%} of activations", qat, kept=kept) for kept in (0.5, 0.6, 0.8, 1.0)),
        Subject("qad and ce, half each", replace(qat, loss="mix")),
        Subject("lsq", replace(qat, loss="kl", trained="scales")),
        Subject("qat, recomputed", replace(qat, recompute=True)),
        Subject("qat, every token learned", qat, share=1.0),
        Subject("plain sft, every token learned", replace(sft, **eager), plain=True, share=1.0),
    ]


SUBJECTS: Final = tuple(_subjects())
FIRST: Final = 3
"""The number of subjects that run before AWQ's searches."""


def measure(subject: Subject, size: Size, device: str) -> BenchResult:
    """Run one subject from the start."""
    _free()
    settings, half = size.of(subject.settings), size.steps // 2
    data = rows(size, subject.share, subject.mixed)
    before: dict[str, float] = {}
    learner = Learner(build(size, device), settings)
    with _timed(before, "calibrate"):
        _quantize(learner.model, settings, data, size)
    teacher = None
    if settings.loss != "ce":
        with _timed(before, "teacher"):
            teacher = teacher_states(learner, data, 0, size.batch)
    hold = _compile(learner, subject)
    trainer = Trainer(learner, data, 0, settings, teacher=teacher, hold=hold)
    tokens = size.batch * (size.steps - half)
    if subject.plain:
        losses, times = plain_loop(learner.model, trainer.steps, data, settings)
    else:
        records: list[Record] = trainer.run(lambda text: None)
        losses, times = [record.loss for record in records], [record.seconds for record in records]
        tokens = sum(record.tokens for record in records[half:])
    seconds = times[-1] - times[half - 1]
    before["first steps"] = times[half - 1]
    return BenchResult(subject.name, tokens / seconds, seconds / (size.steps - half), _peak(), before, losses)


def agreement(size: Size, device: str) -> dict[str, float]:
    """How much compiled results differ from eager ones: the share of weights, and of a block's outputs, that
    differ."""
    _free()
    learner = Learner(build(size, device), SETTINGS)
    _quantize(learner.model, SETTINGS, rows(size, SHARE, False), size)
    Hold()(learner.model)
    layers = nvfp4_layers(learner.model).values()
    held = [layer.held.clone() for layer in layers if layer.held is not None]
    hold_weights(learner.model)
    again = [layer.held for layer in layers if layer.held is not None]
    off = sum(int(one.ne(other).sum()) for one, other in zip(again, held, strict=True))
    x = torch.randn(size.rows, size.tokens, size.shape["hidden_size"], device=device).bfloat16()
    block = learner.model.get_submodule("model.layers.0")
    places = torch.arange(size.tokens, device=device)[None]
    rotary = learner.model.get_submodule("model.rotary_emb")(x, places)
    with torch.no_grad():
        eager = block(x, position_embeddings=rotary)
        compile_blocks(learner.model)
        compiled = block(x, position_embeddings=rotary)
    eager, compiled = (y[0] if isinstance(y, tuple) else y for y in (eager, compiled))
    weights = sum(one.numel() for one in held)
    return {
        "weights that differ": off / weights,
        "block outputs that differ": float((eager != compiled).float().mean()),
        "block, relative error": float((eager - compiled).float().norm() / eager.float().norm()),
    }


def main(arguments: list[str] | None = None) -> int:
    """Run the parts that fit the time budget, and print the table."""
    parser = argparse.ArgumentParser(prog="python -m quantizer.experiments.bench", description=__doc__)
    parser.add_argument("--only", nargs="+", metavar="NAME", help="these subjects")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write everything there too")
    parser.add_argument(
        "--budget", type=float, default=120.0, metavar="SECONDS", help="start none after (%(default)s)"
    )
    parser.add_argument("--tiny", action="store_true", help="the same path without a GPU; measures nothing")
    given = parser.parse_args(arguments)
    if not (given.tiny or torch.cuda.is_available()):
        print("this measures a GPU, and torch sees none", file=sys.stderr)
        return 69
    began = time.perf_counter()
    size, device = TINY if given.tiny else WHOLE, default_device()
    machine = device_name(torch.device(device))
    out: dict[str, Any] = {"gpu": machine, "torch": torch.__version__, "results": []}
    done: list[BenchResult] = []
    for name, part in _parts(given.only, size, device):
        if time.perf_counter() - began > given.budget:
            out.setdefault("no time for", []).append(name)
            continue
        try:
            found = part()
        except Exception as error:  # such as out of memory; the others should still run
            traceback.print_exc()
            out.setdefault("failed", {})[name] = f"{type(error).__name__}: {error}"[:500]
            found = None
        if isinstance(found, BenchResult):
            done.append(found)
            out["results"] = [asdict(one) for one in done]
            out["table"] = table(done)
        elif found is not None:
            out[name] = found
            print(name, json.dumps(found), flush=True)
        print(f"{time.perf_counter() - began:4.0f} s: {name}", file=sys.stderr, flush=True)
        if given.json:
            given.json.write_text(json.dumps(out, indent=1))
    print("\n".join(table(done)))
    print(json.dumps({one.name: [round(loss, 4) for loss in one.losses] for one in done}))
    return 0


def _parts(only: Sequence[str] | None, size: Size, device: str) -> list[tuple[str, Callable[[], Any]]]:
    """The parts in the order in which they run."""
    made: list[tuple[str, Callable[[], Any]]] = [
        (subject.name, partial(measure, subject, size, device)) for subject in SUBJECTS
    ]
    made.insert(FIRST, ("awq", lambda: awq(size, device)))
    made.insert(FIRST + 3, ("agreement", lambda: agreement(size, device)))
    return [(name, part) for name, part in made if not only or name in only]


def awq(size: Size, device: str) -> dict[str, Any]:
    """Compare our AWQ-lite with ModelOpt's on four batches."""
    _free()
    data = rows(size, SHARE, False)
    chosen = [range(i * size.rows, (i + 1) * size.rows) for i in range(4)]
    return compare(lambda: build(size, device), [collate(data, one, 0).to(device) for one in chosen])


def _quantize(model: nn.Module, settings: Train, data: list[TrainingSample], size: Size) -> None:
    """As `student.open_student`, without a folder."""
    if settings.quantized:
        attach(model, make_plan(model, Layers()))
        calibrate(model, [collate(data, range(size.rows), 0)])
    if settings.precision != "bf16":
        model.float()
    if settings.trained == "scales":
        model.requires_grad_(False)
        for layer in nvfp4_layers(model).values():
            layer.learn_scales()


def _compile(learner: Learner, subject: Subject) -> Callable[[nn.Module], None] | None:
    if subject.settings.recompute:
        recompute(learner.model)
    if not subject.settings.compile:
        return None
    if not torch.cuda.is_available():  # as `student.open_student`
        return hold_weights if subject.settings.quantized else None
    share_inputs(learner.model)
    compile_blocks(learner.model, subject.kept)
    learner.compiled = True
    return Hold() if subject.settings.quantized else None


def _free() -> None:
    """Reset compiled code, memory and statistics."""
    torch._dynamo.reset()
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()


def _peak() -> int:
    return torch.cuda.max_memory_allocated() if torch.cuda.is_available() else 1


@contextmanager
def _timed(into: dict[str, float], name: str) -> Iterator[None]:
    wait()
    began = time.perf_counter()
    yield
    wait()
    into[name] = time.perf_counter() - began


if __name__ == "__main__":
    sys.exit(main())
