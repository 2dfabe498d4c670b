"""The study's runs: `python -m quantizer.study SIZE SEED OUT`. One base, one fine-tune a strength, every method on each.

Everything is measured in memory, on the numbers that the exported bytes stand for (parity is other tests' business).
The result is written after every model, so that a run that ends early has what it had.
"""

from __future__ import annotations

import argparse
import copy
import json
import os
import random
import time
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from tokenizers import Tokenizer
from torch import nn

from quantizer import cost
from quantizer.data.dataset import Dataset, load
from quantizer.data.render import open_renderer
from quantizer.linear import hold_weights
from quantizer.nano import data, hf
from quantizer.nano import tokenizer as bpe
from quantizer.nano.cases import Case, cases
from quantizer.nano.recipe import NANO, Run
from quantizer.nano.rows import write
from quantizer.nano.score_hf import score
from quantizer.nano.train import build_model, train
from quantizer.ptq import Run as Job
from quantizer.ptq import quantize
from quantizer.recipe import load_recipe
from quantizer.recipe_values import Recipe
from quantizer.source import load_model, open_source
from quantizer.study.grid import (
    BASE,
    CASES,
    CONVERSATIONS,
    ROUNDED,
    SIZES,
    STEP_TOKENS,
    STRENGTHS,
    TRAIN_CONVERSATIONS,
    TRAIN_STEPS,
    TRAINED,
    Strength,
)
from quantizer.train.learner import Learner, listen
from quantizer.train.loop import Trainer
from quantizer.train.shard import World
from quantizer.train.student import calibration_run, open_student

Scores = dict[str, tuple[int, int]]


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m quantizer.study", description=__doc__)
    parser.add_argument("size", choices=SIZES)
    parser.add_argument("seed", type=int)
    parser.add_argument("out", type=Path, help="a JSON file")
    parser.add_argument("--minutes", type=float, default=60.0, help="begin no further model after so many")
    parser.add_argument("--tokenizer", type=Path, default=Path("models/annie-nano-hf/tokenizer.json"))
    asked = parser.parse_args()
    Study(asked.size, asked.seed, asked.out, Tokenizer.from_file(str(asked.tokenizer))).run(asked.minutes)


class Study:
    """One size and one seed."""

    def __init__(self, size: str, seed: int, out: Path, tokenizer: Tokenizer) -> None:
        self.size, self.seed, self.out, self.tokenizer = size, seed, out, tokenizer
        self.shape = SIZES[size]
        self.device = "cuda" if torch.cuda.is_available() else "cpu"
        self.pad, self.end = bpe.token_id(tokenizer, bpe.PAD), bpe.token_id(tokenizer, bpe.END)
        self.asked: list[Case] = cases(NANO.data_seed + 2, CASES)
        self.told: dict[str, Any] = {
            "size": size,
            "seed": seed,
            "shape": asdict(self.shape),
            "device": torch.cuda.get_device_name() if self.device == "cuda" else "cpu",
            "tools": cost.tools(),
            "cases": len(self.asked),
            "models": [],
        }

    def run(self, minutes: float) -> None:
        """Everything, as far as the time goes."""
        began = time.perf_counter()
        workers = os.cpu_count() or 1
        base = self._base(workers)
        pool = data.rows(data.annie_sample, self.tokenizer, NANO.data_seed, CONVERSATIONS, workers)
        for strength in STRENGTHS:
            if time.perf_counter() - began > minutes * 60:
                print(f"{strength.name}: no time left", flush=True)
                break
            self._model(base, pool, strength)
            self._save()

    def _base(self, workers: int) -> Any:
        rows = data.rows(data.base_sample, self.tokenizer, NANO.data_seed, BASE.conversations, workers)
        model = build_model(self.shape, self.seed, self.pad, self.end).to(self.device)
        self.told["parameters"] = sum(p.numel() for p in model.parameters())
        self.told["base"] = train(model, rows, BASE, seed=self.seed, pad=self.pad, learn_all=True, log=print)
        self._save()
        return model

    def _model(self, base: Any, pool: list[data.Row], strength: Strength) -> None:
        """One fine-tune and all methods on it."""
        model = copy.deepcopy(base)
        chosen = list(pool)
        random.Random(f"study {self.seed} {strength.name}").shuffle(chosen)
        rows = list(_enough(chosen, strength.steps * STEP_TOKENS))
        settings = Run(len(rows), epochs=1, tokens_per_step=STEP_TOKENS, lr=strength.lr, warmup=20)
        tuned = train(model, rows, settings, seed=self.seed, pad=self.pad, learn_all=False, log=print)
        with TemporaryDirectory() as scratch:
            folder, talk = Path(scratch) / "model", Path(scratch) / "talk.jsonl"
            hf.write_folder(folder, hf.weights_of(model), self.shape, self.tokenizer)
            write(talk, TRAIN_CONVERSATIONS, seed=NANO.data_seed + 1)
            samples = load(talk, open_renderer(folder), max_tokens=2048)
            found = dict(self._methods(folder, samples))
        moved = _moved(base, model)
        self.told["models"].append({**asdict(strength), "fine_tune": tuned, "moved": moved, "methods": found})

    def _methods(self, folder: Path, samples: Dataset) -> Iterator[tuple[str, Any]]:
        source = open_source(folder)
        yield "bf16", self._scored(load_model(source, device=self.device), 0.0)
        for name in (*ROUNDED, *TRAINED):
            recipe = _recipe(name)
            began = time.perf_counter()
            job = Job(recipe, source, samples, self.device)
            model = quantize(calibration_run(job)) if name in ROUNDED else self._trained(job)
            yield name, self._scored(model, time.perf_counter() - began)

    def _trained(self, job: Job) -> nn.Module:
        settings = job.recipe.train
        assert settings is not None
        teacher = None
        if settings.loss != "ce":
            own = load_model(job.source, device=self.device)
            teacher = listen(Learner(own, settings), job.data.samples, job.data.pad, settings.micro_tokens)
        student = open_student(calibration_run(job), World())
        trainer = Trainer(
            student.learner,
            job.data.samples,
            job.data.pad,
            settings,
            teacher=teacher,
            refresh=student.follow,
            hold=student.hold,
        )
        trainer.run(lambda text: None)
        student.close()
        return student.model

    def _scored(self, model: Any, seconds: float) -> dict[str, Any]:
        hold_weights(model)
        began = time.perf_counter()
        scores, _ = score(model, self.tokenizer, self.asked)
        told = {"scores": {name: list(pair) for name, pair in scores.items()}, "seconds": round(seconds, 2)}
        print(json.dumps(told), f"scored in {time.perf_counter() - began:.1f} s", flush=True)
        return told

    def _save(self) -> None:
        draft = self.out.with_suffix(".draft")
        draft.write_text(json.dumps(self.told, indent=1) + "\n", encoding="utf-8")
        draft.replace(self.out)


def _enough(rows: list[data.Row], tokens: int) -> Iterator[data.Row]:
    """The first rows that hold so many tokens."""
    for row in rows:
        if tokens <= 0:
            return
        tokens -= len(row.ids)
        yield row


def _recipe(name: str) -> Recipe:
    """The shipped recipe; trainings get as many steps here, and no compilation, which would outlast them."""
    if name in ROUNDED:
        return load_recipe(name)
    return load_recipe(name, [f"train.max_steps={TRAIN_STEPS}", "train.compile=false", "train.batch_tokens=8192",
                              "train.micro_tokens=8192"])  # fmt: skip


@torch.no_grad()
def _moved(base: nn.Module, tuned: nn.Module) -> float:
    """How far a fine-tune has moved the matrices: |W' - W| / |W|, over all of them."""
    pairs = [(a, b) for a, b in zip(base.parameters(), tuned.parameters(), strict=True) if a.ndim == 2]
    moved = sum(float((b.float() - a.float()).square().sum()) for a, b in pairs)
    whole = sum(float(a.float().square().sum()) for a, _ in pairs)
    return round((moved / whole) ** 0.5, 5)
