"""Our training beside the plain loop, in one run on one GPU: tokens/s, peak memory, and the losses step by step.

    python -m quantizer.bench [--only NAME ...] [--json FILE] [--budget SECONDS]

The model is a random Qwen3 of 0.47 billion parameters, the batch 8 rows of 2048 random tokens, of which 27 % are the
assistant's (what the field's own conversations had). "plain" is what a page of transformers code does: float32 weights,
bf16 autocast, labels into the model, fused AdamW. Every subject makes the same steps over the same rows. The first half
of the steps is a warm-up, compilation and calibration with it; the second half is timed.
"""

from __future__ import annotations

import argparse
import gc
import json
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
import torch._dynamo
from torch import nn

from quantizer.attach import attach, make_plan
from quantizer.bench_table import Result, table
from quantizer.calibrate import calibrate
from quantizer.data.batches import Step, collate
from quantizer.data.render import Sample
from quantizer.linear import hold_weights, nvfp4_layers
from quantizer.recipe_values import Layers, Train
from quantizer.train.learner import Learner, listen
from quantizer.train.loop import Record, Trainer
from quantizer.train.speed import KEPT, Hold, compile_blocks, recompute, share_inputs
from quantizer.train.weights import learning_rate

ROWS, TOKENS, STEPS, SHARE = 8, 2048, 20, 0.27
SHAPE: Final = {
    "vocab_size": 32768,
    "hidden_size": 1024,
    "intermediate_size": 3072,
    "num_hidden_layers": 28,
    "num_attention_heads": 16,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "max_position_embeddings": 4096,
    "tie_word_embeddings": True,
}
SETTINGS: Final = Train(
    lr=1e-4, warmup=0.0, schedule="constant", batch_tokens=ROWS * TOKENS, micro_tokens=ROWS * TOKENS, epochs=1,
    max_steps=STEPS,
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Subject:
    """One line of the table. plain: transformers' loop around the same model. share: of tokens that are learned. kept:
    as `speed.KEPT`. mixed: rows of 256 to 2048 tokens, so that no two batches have one shape."""

    name: str
    settings: Train
    plain: bool = False
    share: float = SHARE
    kept: float = KEPT
    mixed: bool = False


def _subjects() -> list[Subject]:
    sft, qat = replace(SETTINGS, quantized=False), SETTINGS
    eager = {"precision": "autocast", "compile": False}
    return [
        Subject("plain sft", replace(sft, **eager), plain=True),
        Subject("sft", sft),
        Subject("qat", qat),
        Subject("qad", replace(qat, loss="kl")),
        Subject("qad, lr 1e-6", replace(qat, loss="kl", lr=1e-6)),
        Subject("plain qat", replace(qat, **eager), plain=True),
        Subject("sft, autocast", replace(sft, precision="autocast")),
        Subject("qat, rows of all lengths", qat, mixed=True),
        *(Subject(f"qat, {kept:.0%} of activations", qat, kept=kept) for kept in (0.5, 0.6, 0.8, 1.0)),
        Subject("qad and ce, half each", replace(qat, loss="mix")),
        Subject("lsq", replace(qat, loss="kl", trained="scales")),
        Subject("qat, recomputed", replace(qat, recompute=True)),
        Subject("qat, every token learned", qat, share=1.0),
        Subject("plain sft, every token learned", replace(sft, **eager), plain=True, share=1.0),
    ]


SUBJECTS: Final = tuple(_subjects())


def rows(subject: Subject) -> list[Sample]:
    """Random tokens in turns of 64; so many of the turns are the assistant's."""
    rng = np.random.default_rng(7)
    made = []
    for _ in range(ROWS * STEPS * (2 if subject.mixed else 1)):
        turns = (rng.integers(256, TOKENS + 1) if subject.mixed else TOKENS) // 64
        ids = rng.integers(0, SHAPE["vocab_size"], turns * 64).astype(np.int32)
        learned = np.repeat(rng.permutation(turns) < round(subject.share * turns), 64)
        learned[0] = False
        made.append(Sample(ids, learned))
    return made


def build(device: str) -> nn.Module:
    """The random model in BF16."""
    from transformers import Qwen3Config, Qwen3ForCausalLM

    torch.manual_seed(0)
    with torch.device(device):
        return Qwen3ForCausalLM(Qwen3Config(**SHAPE)).to(torch.bfloat16)


def measure(subject: Subject, device: str = "cuda") -> Result:
    """Run one subject from nothing."""
    torch._dynamo.reset()
    gc.collect()
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    data = rows(subject)
    before: dict[str, float] = {}
    learner = Learner(build(device), subject.settings)
    with _timed(before, "calibrate"):
        _quantize(learner.model, subject.settings, data)
    teacher = None
    if subject.settings.loss != "ce":
        with _timed(before, "teacher"):
            teacher = listen(learner, data, 0, ROWS * TOKENS)
    hold = _compile(learner, subject)
    trainer = Trainer(learner, data, 0, subject.settings, teacher=teacher, hold=hold)
    tokens = ROWS * TOKENS * (STEPS - STEPS // 2)
    if subject.plain:
        losses, times = plain_loop(learner.model, trainer.steps, data, subject.settings)
    else:
        records: list[Record] = trainer.run(lambda text: None)
        losses, times = [record.loss for record in records], [record.seconds for record in records]
        tokens = sum(record.tokens for record in records[STEPS // 2 :])
    half = STEPS // 2
    seconds = times[-1] - times[half - 1]
    before["first steps"] = times[half - 1]
    peak = torch.cuda.max_memory_allocated()
    return Result(subject.name, tokens / seconds, seconds / (STEPS - half), peak, before, losses)


def plain_loop(
    model: nn.Module, steps: list[Step], data: list[Sample], settings: Train
) -> tuple[list[float], list[float]]:
    """What a page of transformers code does; losses, and seconds since the beginning at the end of each half."""
    matrices = [p for p in model.parameters() if p.ndim >= 2]
    vectors = [p for p in model.parameters() if p.ndim < 2]
    adam = torch.optim.AdamW([{"params": matrices}, {"params": vectors}], betas=(0.9, 0.95), weight_decay=0.0,
                             fused=True)  # fmt: skip
    model.train()
    began, losses, times = time.perf_counter(), [], []
    for number, step in enumerate(steps):
        for group in adam.param_groups:
            group["lr"] = learning_rate(number, len(steps), settings)
        batch = collate(data, step[0], 0).to("cuda")
        with torch.autocast("cuda", dtype=torch.bfloat16):
            loss = model(input_ids=batch.ids, labels=batch.labels).loss
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), settings.clip)
        adam.step()
        adam.zero_grad()
        losses.append(loss.detach())
        if (number + 1) % (STEPS // 2) == 0:
            torch.cuda.synchronize()
        times.append(time.perf_counter() - began)
    return [float(loss) for loss in losses], times


def agreement(device: str = "cuda") -> dict[str, float]:
    """How far compiled numbers are from eager ones: the share of weights, and of a block's outputs, that differ."""
    torch._dynamo.reset()
    learner = Learner(build(device), SETTINGS)
    _quantize(learner.model, SETTINGS, rows(SUBJECTS[0]))
    Hold()(learner.model)
    layers = nvfp4_layers(learner.model).values()
    held = [layer.held.clone() for layer in layers]
    hold_weights(learner.model)
    off = sum(int((layer.held != one).sum()) for layer, one in zip(layers, held, strict=True))
    x = torch.randn(ROWS, TOKENS, SHAPE["hidden_size"], device=device).bfloat16()
    block = learner.model.get_submodule("model.layers.0")
    places = torch.arange(TOKENS, device=device)[None]
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
    """Run the subjects that fit the budget, and print the table."""
    parser = argparse.ArgumentParser(prog="python -m quantizer.bench", description=__doc__)
    parser.add_argument("--only", nargs="+", metavar="NAME", help="these subjects")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write everything there too")
    parser.add_argument(
        "--budget", type=float, default=220.0, metavar="SECONDS", help="start none after (%(default)s)"
    )
    given = parser.parse_args(arguments)
    if not torch.cuda.is_available():
        print("this measures a GPU, and torch sees none", file=sys.stderr)
        return 69
    began, done = time.perf_counter(), []
    out: dict[str, Any] = {"gpu": torch.cuda.get_device_name(), "torch": torch.__version__, "results": []}
    if not given.only:
        out["agreement"] = agreement()
        print(json.dumps(out["agreement"]), flush=True)
    for subject in SUBJECTS:
        if given.only and subject.name not in given.only or time.perf_counter() - began > given.budget:
            continue
        try:
            done.append(measure(subject))
        except RuntimeError:  # out of memory, or a compiler's: the others are still worth their time
            traceback.print_exc()
            continue
        out["results"] = [asdict(one) for one in done]
        print(f"{time.perf_counter() - began:4.0f} s: {subject.name}", file=sys.stderr, flush=True)
        if given.json:
            given.json.write_text(json.dumps(out, indent=1))
    print("\n".join(table(done)))
    print(json.dumps({one.name: [round(loss, 4) for loss in one.losses] for one in done}))
    return 0


def _quantize(model: nn.Module, settings: Train, data: list[Sample]) -> None:
    """As `student.open_student` does, without a folder."""
    if settings.quantized:
        attach(model, make_plan(model, Layers()))
        calibrate(model, [collate(data, range(ROWS), 0)])
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
    share_inputs(learner.model)
    compile_blocks(learner.model, subject.kept)
    learner.compiled = True
    return Hold() if subject.settings.quantized else None


@contextmanager
def _timed(into: dict[str, float], name: str) -> Iterator[None]:
    torch.cuda.synchronize()
    began = time.perf_counter()
    yield
    torch.cuda.synchronize()
    into[name] = time.perf_counter() - began


if __name__ == "__main__":
    sys.exit(main())
