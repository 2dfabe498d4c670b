"""Two GPUs of one host against one: tokens/s, what the difference is made of, and a kill that a run goes on after.

    python -m quantizer.experiments.bench.two_gpus [--json FILE] [--budget SECONDS] [--only NAME ...] [--tiny]

Starts its own processes, one for each GPU; no torchrun is needed. Every line of the table is a variant of one thing: a
random model of 0.47B (dense) or 9B (Qwen3.5's hybrid), trained by QAT on random tokens, of which 27 % are the
assistant's. Each process takes the same number of tokens as the one GPU does alone, unless the variant says otherwise.
After the timed steps two more run under torch's profiler: `compute` and `nccl` are seconds of kernels a step, and `idle`
is what is left of the step when no kernel computed: waiting for NCCL, or for Python. The kill is a line of its own, which
`--only kill` chooses; without --only it is among all.

--tiny runs the same on a CPU over gloo, with models of a few thousand weights; it measures nothing.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from queue import Empty, SimpleQueue
from threading import Thread
from typing import Any, Final, Literal

import torch
from torch import nn

from quantizer.core.errors import first_line
from quantizer.data.batches import collate
from quantizer.data.render import TrainingSample
from quantizer.experiments.bench.model import SHAPE, TURN, even_rows, in_bf16, random_qwen3_5
from quantizer.experiments.bench.ports import free_port
from quantizer.layers.attach import attach, make_plan
from quantizer.layers.deltanet import use_chunks
from quantizer.layers.linear import hold_weights
from quantizer.ptq.calibrate import calibrate
from quantizer.recipes.recipe import Layers, Train
from quantizer.train import shard
from quantizer.train.learner import Learner
from quantizer.train.load import wake
from quantizer.train.loop import Trainer
from quantizer.train.shard import Sharding, World
from quantizer.train.speed import Hold, compile_blocks, exact_options, recompute, share_inputs

MODULE: Final = "quantizer.experiments.bench.two_gpus"
PATIENCE: Final = 400.0
"""Seconds for one variant, the start of its processes and compiling 9B on a busy host included: where one of two runs out
of memory, the other waits."""
KILL: Final = "kill"
"""What --only calls the kill and the resume."""
SHARE: Final = 0.27
TINY_DENSE: Final[dict[str, Any]] = {"vocab_size": 256, "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2,
                     "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 32}  # fmt: skip
TINY_HYBRID: Final[dict[str, Any]] = {**TINY_DENSE, "num_hidden_layers": 4, "linear_num_key_heads": 2, "linear_num_value_heads": 4,
                      "head_dim": 64, "linear_key_head_dim": 16, "linear_value_head_dim": 16}  # fmt: skip


@dataclass(frozen=True, slots=True)
class GpuVariant:
    """One line of the table. tokens: of a micro-batch, in rows of `length`. micros: of a process in a step. compiled:
    a block as it is called, FSDP2's hooks included ("call"), or its forward alone ("forward"). deferred: gradients travel after a step's last micro-batch
    only."""

    name: str
    gpus: int
    model: str = "0.5B"
    optimizer: Literal["adamw", "adamw_8bit"] = "adamw"
    tokens: int = 16384
    length: int = 2048
    micros: int = 1
    compiled: str = "call"
    sharding: Sharding = Sharding()
    deferred: bool = False
    steps: int = 20


def variants() -> list[GpuVariant]:
    """All of them, the most telling first: what runs out of time is at the end."""
    two = GpuVariant("0.5B, two", 2)
    nine = GpuVariant("9B, one, 8 bits", 1, "9B", "adamw_8bit", 4096, steps=8)
    nine_two = replace(nine, name="9B, two, 8 bits", gpus=2)
    return [
        GpuVariant("0.5B, one", 1),
        two,
        replace(two, name="0.5B, two, no prefetch", sharding=Sharding(prefetch=0)),
        replace(two, name="0.5B, two, not resharded", sharding=Sharding(reshard=False)),
        nine,
        nine_two,
        replace(nine_two, name="9B, two, exact", optimizer="adamw"),
        replace(nine_two, name="9B, two, hooks not compiled", compiled="forward"),
        # Twice the work for what travels once.
        replace(nine, name="9B, one, 8 bits, 8,192 tokens", tokens=8192),
        replace(nine_two, name="9B, two, 8 bits, 8,192 tokens", tokens=8192),
        replace(two, name="0.5B, two, half the tokens each", tokens=8192),
        replace(two, name="0.5B, two, two micro-batches", micros=2),
        replace(two, name="0.5B, two, two micro-batches, deferred", micros=2, deferred=True),
        replace(two, name="0.5B, two, prefetch of two", sharding=Sharding(prefetch=2)),
        replace(two, name="0.5B, two, hooks not compiled", compiled="forward"),
    ]


class _Deferred(Trainer):
    """Lets gradients travel after a step's last micro-batch only."""

    def _backward(self, chosen: Sequence[int], count: int) -> torch.Tensor:
        learner: Any = self.learner
        mine = self.steps[self.step][self.world.rank :: self.world.size]
        learner.set_requires_gradient_sync(chosen == mine[-1])
        return super()._backward(chosen, count)


def measure(variant: GpuVariant, world: World, tiny: bool) -> dict[str, Any]:
    """Run one variant in this process; the first process's numbers, and the largest peak."""
    _free()
    cuda = torch.cuda.is_available()
    device = "cuda" if cuda else "cpu"
    if tiny:
        variant = replace(variant, tokens=max(128, variant.tokens // 128), length=64, steps=4)
    step_tokens = variant.tokens * variant.micros * world.size
    low = variant.optimizer != "adamw"
    settings = Train(
        quantized=True, epochs=1, lr=1e-5, warmup=0.0, schedule="constant", clip=1.0, refresh=0,
        optimizer=variant.optimizer, micro_tokens=variant.tokens, batch_tokens=variant.tokens if low else step_tokens,
        save=variant.steps // 2, max_steps=variant.steps, recompute=variant.model != "0.5B",
    )  # fmt: skip
    model = _build(variant.model, device, tiny)
    vocabulary: Any = model.config
    data = _rows(variant, world, vocabulary.vocab_size)
    learner, hold = _prepare(model, settings, data, variant, world)
    kind = _Deferred if variant.deferred else Trainer
    trainer = kind(learner, data, 0, settings, world=world, hold=hold)
    if cuda:
        torch.cuda.reset_peak_memory_stats()
    records = trainer.run(lambda text: None)
    half = variant.steps // 2
    seconds = (records[-1].seconds - records[half - 1].seconds) / (len(records) - half)
    peak = torch.tensor(float(torch.cuda.max_memory_allocated()) if cuda else 0.0)
    found = {
        "name": variant.name,
        "gpus": world.size,
        "tokens_a_step": records[-1].tokens,
        "step_seconds": round(seconds, 4),
        "tokens_per_second": round(records[-1].tokens / seconds, 1),
        "peak_gib": round(float(peak) / 2**30, 2),
        "losses": [round(record.loss, 4) for record in (records[0], records[-1])],
    }
    return found | (_profiled(trainer, seconds) if cuda else {})


def _prepare(
    model: nn.Module, settings: Train, data: list[TrainingSample], variant: GpuVariant, world: World
) -> tuple[Learner, Any]:
    """The learner as the variant wants it, and what rounds its weights for a step; where they are sharded, nothing."""
    attach(model, make_plan(model, Layers()))
    calibrate(model, [collate(data, [0], 0)])
    if settings.recompute:
        recompute(model)
    learner = Learner(model, settings)
    compiled = torch.cuda.is_available()
    if compiled:
        use_chunks(model, compiled=True)
        share_inputs(model)
        if variant.compiled == "call":
            compile_blocks(model)
        else:
            for block in shard.blocks_of(model):
                block.forward = torch.compile(block.forward, options=exact_options())
        learner.compiled = True
    shard.shard(learner, model, world, variant.sharding)
    if world.size > 1:
        wake(learner)
    if world.size > 1 or settings.optimizer != "adamw":
        return learner, None
    return learner, Hold() if compiled else hold_weights


def _profiled(trainer: Trainer, seconds: float) -> dict[str, float]:
    """Seconds of kernels in a step, of NCCL and of all others, over two more steps."""
    from torch.profiler import ProfilerActivity, profile

    trainer.learner.train()
    with profile(activities=[ProfilerActivity.CUDA]) as seen:
        for step in trainer.steps[:2]:
            trainer.step = 0
            trainer._one(step)
            trainer.hold()
        torch.cuda.synchronize()
    sums = {"nccl": 0.0, "compute": 0.0}
    for event in seen.key_averages():
        spent: Any = getattr(event, "self_device_time_total", 0.0)
        sums["nccl" if "nccl" in event.key.lower() else "compute"] += spent / 2e6
    found = {f"{name}_seconds": round(value, 4) for name, value in sums.items()}
    return found | {"idle_seconds": round(max(0.0, seconds - sums["compute"]), 4)}


def _build(name: str, device: str, tiny: bool) -> nn.Module:
    """The random model in BF16, the same in every process."""
    from transformers import Qwen3Config, Qwen3ForCausalLM

    if name == "0.5B":
        return in_bf16(
            lambda: Qwen3ForCausalLM(Qwen3Config(**(SHAPE | (TINY_DENSE if tiny else {})))), device
        )
    return random_qwen3_5(TINY_HYBRID if tiny else {}, device)


def _rows(variant: GpuVariant, world: World, vocabulary: int) -> list[TrainingSample]:
    """Rows for every step."""
    length = max(2, variant.length // TURN) * TURN
    count = variant.steps * variant.micros * world.size * variant.tokens // length
    return even_rows(count, length, SHARE, vocabulary)


def _free() -> None:
    import gc

    torch._dynamo.reset()
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


# --------------------------------------------------------------------------------- the processes of a run


def _child(names: Sequence[str], tiny: bool) -> int:
    """One of the processes: the variants one after another, a line of JSON each."""
    world = shard.join()
    by_name = {variant.name: variant for variant in variants()}
    for name in names:
        try:
            found = measure(by_name[name], world, tiny)
        except torch.OutOfMemoryError as error:
            found = {"name": name, "failed": f"out of memory ({first_line(error):.80})"}
        if world.rank == 0:
            print(json.dumps(found), flush=True)
    shard.leave()
    return 0


@contextmanager
def _started(count: int, *words: str) -> Iterator[list[subprocess.Popen[str]]]:
    """So many processes of this program, as torchrun would start them; none is left behind."""
    shared = {
        **os.environ, "WORLD_SIZE": str(count), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()),
        "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", "8"),
        "PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True",
    }  # fmt: skip
    made = [
        subprocess.Popen(
            [sys.executable, "-m", MODULE, *words],
            env={**shared, "RANK": str(rank), "LOCAL_RANK": str(rank)},
            stdout=subprocess.PIPE if rank == 0 else sys.stderr,
            text=True,
        )
        for rank in range(count)
    ]
    try:
        yield made
    finally:
        for process in made:
            if process.poll() is None:
                process.kill()
            process.wait()


def _measured(group: Sequence[GpuVariant], tiny: bool, until: float) -> Iterator[dict[str, Any]]:
    """What the processes of some variants report, as it comes; processes that are late are ended."""
    words = ["--child", *(variant.name for variant in group), *(["--tiny"] if tiny else [])]
    missing = {variant.name for variant in group}
    with _started(group[0].gpus, *words) as made:
        lines: SimpleQueue[str] = SimpleQueue()
        stdout: Any = made[0].stdout
        Thread(target=lambda: deque(map(lines.put, stdout), maxlen=0), daemon=True).start()
        late = time.monotonic() + PATIENCE
        while missing and time.monotonic() < min(until, late):
            try:
                found = json.loads(lines.get(timeout=0.2))
            except Empty:
                if any(process.poll() for process in made):
                    break
                continue
            late = time.monotonic() + PATIENCE
            missing.discard(found["name"])
            yield found
    reason = "no time" if time.monotonic() >= until else "a process failed, or was late"
    for name in missing:
        yield {"name": name, "failed": reason}


def _chosen(words: Sequence[str] | None) -> list[GpuVariant]:
    """Those of the given names, and those that have a given word in theirs; without words, all. `KILL` is none of them."""
    every = variants()
    names = {variant.name for variant in every}
    return [v for v in every if not words or any(v.name == w if w in names else w in v.name for w in words)]


def _groups(chosen: Sequence[GpuVariant]) -> list[list[GpuVariant]]:
    """Neighbours that the same processes can run."""
    made: list[list[GpuVariant]] = []
    for variant in chosen:
        if made and (made[-1][0].gpus, made[-1][0].model) == (variant.gpus, variant.model):
            made[-1].append(variant)
        else:
            made.append([variant])
    return made


# ------------------------------------------------------------------------------------- a kill, and going on

MODEL: Final = Path("models/annie-nano-hf")
CHANGES: Final = ("train.max_steps=10", "train.save=1", "train.epochs=20", "train.refresh=3", "train.compile=false",
                  "train.batch_tokens=4096", "train.micro_tokens=2048", "train.lr=1e-4")  # fmt: skip


def kill_and_resume(tiny: bool, optimizer: str = "adamw") -> dict[str, Any]:
    """Kill one of two processes with SIGKILL in mid-training, start both again, and compare every loss with those of a
    run that nobody killed."""
    from quantizer.experiments.nano import rows

    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        rows.write(place / "data.jsonl", 6 if tiny else 24)
        words = ["--train", folder, "--optimizer", optimizer, *(["--tiny"] if tiny else [])]
        with _started(2, *words, "--out", "killed") as made:
            _wait_for(made, place / "killed.training")
            made[1].send_signal(signal.SIGKILL)
            made[1].wait()
            late = time.monotonic() + 20
            while made[0].poll() is None and time.monotonic() < late:
                time.sleep(0.05)
            left_alone = "ended by itself" if made[0].poll() is not None else "had to be killed, too"
        kept = sorted(path.name for path in (place / "killed.training").glob("step-????????"))
        for out in ("killed", "whole"):
            with _started(2, *words, "--out", out) as made:
                for process in made:
                    process.wait(timeout=PATIENCE)
        curves = [_losses(place / out / "training.jsonl") for out in ("killed", "whole")]
    off = max(abs(a - b) / abs(b) for a, b in zip(*curves, strict=True))
    return {
        "name": f"kill and resume, {optimizer}", "killed_after": kept[-1], "other_process": left_alone,
        "steps": len(curves[1]), "losses_equal_to_the_bit": curves[0] == curves[1], "largest_difference": off,
        "seconds": round(time.monotonic() - began, 1),
    }  # fmt: skip


def _wait_for(made: Sequence[subprocess.Popen[str]], saved: Path) -> None:
    """Until the third checkpoint is there."""
    until = time.monotonic() + PATIENCE
    while time.monotonic() < until and not any(process.poll() is not None for process in made):
        if any(path.name >= "step-00000003" for path in saved.glob("step-????????")):
            return
        time.sleep(0.01)
    raise SystemExit("the run ended before it could be killed")


def _losses(path: Path) -> list[float]:
    return [json.loads(line)["loss"] for line in path.read_text().splitlines()]


def _train(folder: Path, out: str, optimizer: str, tiny: bool) -> int:
    """One process of a real training run over the nano model."""
    from quantizer.recipes.recipe import load_recipe
    from quantizer.train.run import run

    device = "cuda" if torch.cuda.is_available() else "cpu"
    _compute_alike()
    try:
        run(load_recipe("qat", _changes(optimizer, tiny)), MODEL, folder / "data.jsonl", folder / out,
            now=datetime.now(UTC), device=device, resume=True, log=lambda text: None)  # fmt: skip
    finally:
        shard.leave()
    return 0


def _changes(optimizer: str, tiny: bool) -> list[str]:
    """What is set in the recipe."""
    changes = [*CHANGES, f"train.optimizer={optimizer}"]
    if tiny:
        changes += ["train.max_steps=6", "train.batch_tokens=1024", "train.micro_tokens=512"]
    if optimizer != "adamw":  # a step is one micro-batch
        changes.append(f"train.batch_tokens={512 if tiny else 2048}")
    return changes


def _compute_alike() -> None:
    """Let two runs add in the same order, as far as torch can, so that what differs is what resuming lost. Where an
    operation has no such form torch warns rather than refuses; but then the backward passes of flash, cuDNN's and
    memory-efficient attention take their fastest way, too, whose order is chance. So attention is plain matrix products."""
    os.environ["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"
    torch.use_deterministic_algorithms(True, warn_only=True)
    torch.backends.cuda.enable_cudnn_sdp(False)
    torch.backends.cuda.enable_flash_sdp(False)
    torch.backends.cuda.enable_mem_efficient_sdp(False)


# ------------------------------------------------------------------------------------------------ the table


def table(done: Sequence[dict[str, Any]]) -> list[str]:
    """As Markdown. x: tokens/s against the first line of the same model."""
    lines = ["| | tokens/s | x | s a step | compute, s | nccl, s | idle, s | GiB a GPU |", "|---" * 8 + "|"]
    first: dict[str, float] = {}
    for one in done:
        if "failed" in one:
            lines.append(f"| {one['name']} | {one['failed']} | | | | | | |")
        elif "tokens_per_second" in one:
            speed = one["tokens_per_second"]
            base = first.setdefault(one["name"].partition(",")[0], speed)
            parts = " | ".join(
                f"{one.get(f'{part}_seconds', 0.0):.3f}" for part in ("compute", "nccl", "idle")
            )
            lines.append(
                f"| {one['name']} | {speed:,.0f} | {speed / base:.2f} | {one['step_seconds']:.3f} | {parts} | {one['peak_gib']:.1f} |"
            )
    return lines


def main(arguments: list[str] | None = None) -> int:
    """Run what fits the budget; print and write each line as it comes."""
    given = _arguments(arguments)
    if given.child:
        return _child(given.child, given.tiny)
    if given.train:
        return _train(given.train, given.out, given.optimizer, given.tiny)
    chosen, kill = _chosen(given.only), not given.no_kill and (not given.only or KILL in given.only)
    if not chosen and not kill:
        print(f"--only: there is no {' '.join(given.only)}", file=sys.stderr)
        return 2
    needed = max([*(variant.gpus for variant in chosen), *([2] if kill else [])])
    if not given.tiny and torch.cuda.device_count() < needed:
        what = "one GPU, and torch sees none" if needed == 1 else "two GPUs, and torch does not see two"
        print(f"this measures {what}", file=sys.stderr)
        return 69
    until = time.monotonic() + given.budget
    machine = torch.cuda.get_device_name() if torch.cuda.is_available() else "CPU"
    out: dict[str, Any] = {"gpu": machine, "torch": torch.__version__, "results": []}

    def record(found: dict[str, Any]) -> None:
        out["results"].append(found)
        print(f"{given.budget - until + time.monotonic():4.0f} s: {json.dumps(found)}", flush=True)
        if given.json:
            given.json.write_text(json.dumps(out | {"table": table(out["results"])}, indent=1) + "\n")

    groups = _groups(chosen)
    for place, group in enumerate(groups or [[]]):
        for found in _measured(group, given.tiny, until) if group else ():
            record(found)
        if place == min(1, max(0, len(groups) - 1)) and kill:
            record(kill_and_resume(given.tiny, given.optimizer))
    print("\n".join(table(out["results"])))
    return 0


def _arguments(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog=f"python -m {MODULE}", description=__doc__)
    parser.add_argument(
        "--only",
        nargs="+",
        metavar="NAME",
        help=f"variants of these names, or with one of these words in theirs; {KILL}: the kill and the resume",
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write everything there too, as it comes")
    parser.add_argument(
        "--budget", type=float, default=560.0, metavar="SECONDS", help="for all (%(default)s)"
    )
    parser.add_argument("--no-kill", action="store_true", help="leave out the kill and the resume")
    parser.add_argument("--tiny", action="store_true", help="the same path on a CPU; measures nothing")
    parser.add_argument("--child", nargs="+", metavar="NAME", help=argparse.SUPPRESS)
    parser.add_argument("--train", type=Path, metavar="DIR", help=argparse.SUPPRESS)
    parser.add_argument("--out", help=argparse.SUPPRESS)
    parser.add_argument(
        "--optimizer",
        choices=("adamw", "adamw_8bit"),
        default="adamw",
        help="of the run that is killed (%(default)s)",
    )
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
