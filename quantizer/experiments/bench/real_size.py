"""The real size. Either a random Qwen3.5-9B through the whole quantizer (quantizer.experiments.bench.real_path):

    python -m quantizer.experiments.bench.real_size --out FILE.json [--steps NAME,…] [--shape tiny|9b] [--place DIR]

Or training alone, under a cap on GPU memory: peak bytes and tokens/s of Qwen3.5's shapes.

    python -m quantizer.experiments.bench.real_size --training [--only NAME ...] [--json FILE] [--budget SECONDS]

For training, the models are random, a step is 4,096 random tokens in two rows, of which 27 % are the assistant's. A setting runs in
a process of its own, from building the model to the last step, under `torch.cuda.set_per_process_memory_fraction`. The
peaks are torch's: allocated, what tensors took; reserved, what the allocator took from the GPU, which the cap is about.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import torch

from quantizer.data.batches import collate
from quantizer.experiments.bench.model import even_rows, random_qwen3_5
from quantizer.experiments.bench.shapes import SHAPES
from quantizer.recipes.recipe import Layers, Train

GIB: Final = 2**30
TOKENS: Final = 4096
SHARE: Final = 0.27
WARM: Final = 3
"""Steps that are not timed: the first one measures the gradient's shares, and kernels are compiled in it."""


@dataclass(frozen=True, slots=True)
class Setting:
    """One line of the table. cap: GiB that the process may take from the GPU. tokens: of a step, in so many rows. share: of
    the tokens that are learned."""

    name: str
    shape: str
    settings: Train
    cap: float
    steps: int = 12
    tokens: int = TOKENS
    rows: int = 2
    share: float = SHARE


def all_settings() -> list[Setting]:
    """All of them, in the order in which they run."""
    exact = Train(lr=1e-5, warmup=0.0, schedule="constant", epochs=1, save=1, recompute=True)
    eight, four = replace(exact, optimizer="adamw_8bit"), replace(exact, optimizer="adamw_4bit")
    some: dict[str, Any] = {"shape": "9B, 8 layers", "cap": 130.0, "steps": 8}
    return [
        Setting("9B QAT, 8 bits", "9B", eight, 48.0),
        Setting("9B QAD, 8 bits", "9B", replace(eight, loss="kl"), 48.0),
        Setting("8 layers QAT, exact", settings=exact, **some),
        Setting("8 layers QAT, 8 bits", settings=eight, **some),
        Setting(
            "9B QAT, 8 bits, every token learned, one row", "9B", eight, 48.0, steps=6, rows=1, share=1.0
        ),
        Setting("27B QAT, 4 bits", "27B", four, 100.0, steps=8),
        Setting("27B QAD, 4 bits", "27B", replace(four, loss="kl"), 100.0, steps=8),
        Setting("9B QAT, 4 bits", "9B", four, 48.0, steps=8),
    ]


TINY: Final = Setting(
    "tiny", "tiny", Train(loss="kl", epochs=1, save=1, optimizer="adamw_8bit"), 1.0, steps=5, tokens=128
)


def measure(setting: Setting, device: str) -> dict[str, Any]:
    """Run one setting in this process. Times are medians over the steps after `WARM`."""
    from quantizer.layers.attach import attach, make_plan
    from quantizer.layers.deltanet import use_chunks
    from quantizer.layers.linear import hold_weights
    from quantizer.ptq.calibrate import calibrate
    from quantizer.train.learner import Learner, teacher_states
    from quantizer.train.loop import Trainer
    from quantizer.train.optimizer_in_backward import OptimizerInBackward
    from quantizer.train.speed import Hold, compile_blocks, recompute, share_inputs

    cuda = device == "cuda"
    if cuda:
        total = torch.cuda.mem_get_info()[1]
        torch.cuda.set_per_process_memory_fraction(setting.cap * GIB / total)
    settings = replace(setting.settings, batch_tokens=setting.tokens, micro_tokens=setting.tokens)
    figures: dict[str, Any] = {
        "name": setting.name,
        "cap_gib": setting.cap,
        "tokens": setting.tokens,
        "rows": setting.rows,
        "parts": {},
    }
    with _part(figures, "build"):
        model: Any = random_qwen3_5(SHAPES[setting.shape], device)
        learner = Learner(model, settings)
    figures["parameters"] = sum(p.numel() for p in model.parameters())
    count, length = setting.steps * setting.rows, setting.tokens // setting.rows
    data = even_rows(count, length, setting.share, model.config.vocab_size)
    teacher = None
    if settings.loss != "ce":
        with _part(figures, "teacher"):
            teacher = teacher_states(learner, data, 0, setting.tokens, Path())
    with _part(figures, "calibrate"):
        attach(model, make_plan(model, Layers()))
        calibrate(model, [collate(data, [0], 0)])
    if settings.recompute:
        recompute(model, settings.kept_layers)
    hold: Any = hold_weights
    if cuda:
        use_chunks(model, compiled=settings.compile)
    if cuda and settings.compile:
        share_inputs(model)
        compile_blocks(model)
        learner.compiled, hold = True, Hold()
    times: list[float] = []
    with _part(figures, "train"):
        trainer = Trainer(
            learner, data, 0, settings, teacher=teacher, hold=hold if settings.optimizer == "adamw" else None
        )
        if isinstance(trainer.weights, OptimizerInBackward):
            figures["held_bytes"] = trainer.weights.bytes()
        records = trainer.run(_log, lambda: times.append(time.perf_counter()))
    each = [b - a for a, b in zip(times, times[1:], strict=False)][WARM - 1 :]
    figures["step_seconds"] = round(statistics.median(each), 4)
    figures["tokens_per_second"] = round(setting.tokens / statistics.median(each), 1)
    figures["mfu"] = round(6 * figures["parameters"] * setting.tokens / statistics.median(each) / 989e12, 4)
    figures["losses"] = [round(record.loss, 4) for record in records]
    return figures


@contextmanager
def _part(figures: dict[str, Any], name: str) -> Iterator[None]:
    """Seconds and peak memory of a `with` block."""
    cuda = torch.cuda.is_available()
    if cuda:
        torch.cuda.synchronize()
        torch.cuda.reset_peak_memory_stats()
    began = time.perf_counter()
    try:
        yield
    finally:
        part: dict[str, float] = {}
        if cuda:
            part["allocated_gib"] = round(torch.cuda.max_memory_allocated() / GIB, 2)
            part["reserved_gib"] = round(torch.cuda.max_memory_reserved() / GIB, 2)
        part["seconds"] = round(time.perf_counter() - began, 1)
        figures["parts"][name] = part
        _log(f"  {name}: {json.dumps(part)}")


def _log(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def table(done: Sequence[dict[str, Any]]) -> list[str]:
    """As Markdown. Peaks are over everything from building the model on."""
    lines = [
        "| | parameters | cap, GiB | allocated, GiB | reserved, GiB | s a step | tokens/s | MFU |",
        "| --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for one in done:
        if "failed" in one:
            lines.append(f"| {one['name']} | | {one['cap_gib']:g} | {one['failed']} | | | | |")
            continue
        peaks = [
            max(part.get(key, 0.0) for part in one["parts"].values())
            for key in ("allocated_gib", "reserved_gib")
        ]
        lines.append(
            f"| {one['name']} | {one['parameters'] / 1e9:.2f} B | {one['cap_gib']:g} | {peaks[0]:.1f} | {peaks[1]:.1f} "
            f"| {one['step_seconds']:.2f} | {one['tokens_per_second']:,.0f} | {one['mfu']:.1%} |"
        )
    return lines


def _run(setting: Setting, seconds: float) -> dict[str, Any]:
    """A setting in a process of its own; what went wrong, if it did."""
    alone = {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True", "OMP_NUM_THREADS": "8"}
    failed = {"name": setting.name, "cap_gib": setting.cap}
    command = [sys.executable, "-m", "quantizer.experiments.bench.real_size", "--one", setting.name]
    try:
        done = subprocess.run(
            command, env=os.environ | alone, stdout=subprocess.PIPE, text=True, timeout=seconds, check=False
        )
    except subprocess.TimeoutExpired:
        return {**failed, "failed": f"not done in {seconds:.0f} s"}
    try:
        return dict(json.loads(done.stdout.splitlines()[-1]))
    except (IndexError, ValueError):
        return {**failed, "failed": f"exit code {done.returncode}"}


def main(arguments: list[str] | None = None) -> int:
    """Run what is asked for, as far as it fits the budget, and print the table."""
    from quantizer.experiments.bench import real_path

    names = [part.name for part in real_path.PATH_STEPS]
    parser = argparse.ArgumentParser(
        prog="python -m quantizer.experiments.bench.real_size",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    option = parser.add_argument
    option("--steps", default=",".join(names), help="separated by commas (%(default)s)")
    option("--shape", default="9b", choices=("tiny", "9b"), help="of the model (%(default)s)")
    option("--place", type=Path, default=Path("/tmp/real-size"), help="where folders are made (%(default)s)")
    option("--scratch", type=Path, help="where qat and qad are made, with 45 GB of checkpoints (--place)")
    option("--out", type=Path, metavar="FILE.json", help="the results, beside a table as FILE.md")
    option("--part", help=argparse.SUPPRESS)
    option("--training", action="store_true", help="training alone, on models in memory")
    option("--only", nargs="+", metavar="NAME", help="with --training: these settings")
    option("--one", metavar="NAME", help="with --training: this one, in this process; one line of JSON")
    option("--json", type=Path, metavar="FILE", help="with --training: write everything there, as it comes")
    option("--budget", type=float, default=1200.0, metavar="SECONDS", help="for all (%(default)s)")
    given = parser.parse_args(arguments)
    if given.training or given.one:
        return _training(given)
    if given.part:
        return real_path.one_part(given.part, given.shape, given.place, given.scratch or given.place)
    asked = given.steps.split(",")
    if unknown := sorted(set(asked) - set(names)):
        parser.error(f"--steps: there is no {unknown[0]}; known: {', '.join(names)}")
    done = real_path.run_all(asked, given.shape, given.place, given.out, given.budget, given.scratch)
    return int(any("failed" in one for one in done["steps"]))


def _training(given: argparse.Namespace) -> int:
    """Run the settings that fit the budget, and print the table."""
    from quantizer.core.cost import default_device, device_name

    named = {setting.name: setting for setting in (*all_settings(), TINY)}
    if given.one:
        setting, figures = named[given.one], {}
        try:
            figures = measure(setting, default_device())
        except torch.OutOfMemoryError as error:
            figures = {"name": setting.name, "cap_gib": setting.cap, "failed": "out of memory"}
            _log(str(error))
        print(json.dumps(figures))
        return 0
    if not torch.cuda.is_available():
        print("this measures a GPU, and torch sees none", file=sys.stderr)
        return 69
    until = time.monotonic() + given.budget
    out: dict[str, Any] = {
        "gpu": device_name(torch.device("cuda")),
        "torch": torch.__version__,
        "results": [],
    }
    for setting in all_settings():
        if given.only and setting.name not in given.only or until - time.monotonic() < 30:
            continue
        out["results"].append(_run(setting, until - time.monotonic()))
        print(table(out["results"])[-1], flush=True)
        if given.json:
            given.json.write_text(json.dumps(out, indent=1) + "\n")
    print("\n".join(table(out["results"])))
    return 0


if __name__ == "__main__":
    sys.exit(main())
