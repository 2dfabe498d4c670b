"""One size and one seed of the study: a base, a fine-tune of each strength, and every method on each.

Everything is measured in memory, on the values that the exported bytes represent (other tests check parity). The
most important cells come first: all strengths with plain rounding, QAD and QAT, then the other methods. The result
is written after every cell, and an interrupted run continues where it was: bases and fine-tunes are stored beside
it.
"""

from __future__ import annotations

import copy
import gc
import json
import math
import random
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from itertools import groupby
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer
from torch import nn

from quantizer.checkpoint.source import load_model, open_source
from quantizer.core import cost
from quantizer.data.dataset import Dataset
from quantizer.experiments.nano import hf
from quantizer.experiments.nano.cases import judge, table
from quantizer.experiments.nano.score_hf import read_tokens
from quantizer.experiments.nano.train import build_model
from quantizer.experiments.study import material as rows
from quantizer.experiments.study.decode import greedy
from quantizer.experiments.study.grid import (
    BASE,
    COMPARED,
    ERRORS,
    FIRST_RATES,
    RATES,
    Grid,
    Strength,
    Tried,
)
from quantizer.experiments.study.learn import Loop, distance, said
from quantizer.experiments.study.material import Material
from quantizer.experiments.study.packs import Pack, packs, shuffled
from quantizer.experiments.study.results import results_folder
from quantizer.layers.attach import detach, make_plan
from quantizer.layers.linear import drop_weights, hold_weights, nvfp4_layers
from quantizer.ptq.quantize import QuantizationJob as Job
from quantizer.ptq.quantize import quantize
from quantizer.recipes.recipe import Layers, Lora, Train, load_recipe
from quantizer.train.learner import Learner
from quantizer.train.lora import adapt
from quantizer.train.shard import World
from quantizer.train.student import calibration_run, open_student
from quantizer.verify.risk import assess

JsonObject = dict[str, Any]


class Study:
    """folder: for results, bases and fine-tunes. left: returns the seconds that are left. rates: a key of `RATES`;
    all rates share bases and fine-tunes, and each but the first has its results in a folder of its name. only: only
    these methods, and those they are compared with; empty for all."""

    def __init__(
        self,
        grid: Grid,
        size: str,
        seed: int,
        folder: Path,
        tokenizer: Tokenizer,
        left: Callable[[], float],
        rates: str = FIRST_RATES,
        only: Sequence[str] = (),
    ) -> None:
        self.grid, self.size, self.seed, self.folder, self.left = grid, size, seed, folder, left
        self.name, self.shape, self.tokenizer = f"{size}-seed{seed}", grid.sizes[size], tokenizer
        self.device = cost.default_device()
        self.pad, self.end = rows.ends(tokenizer)
        self.material: Material = rows.read(folder, grid, tokenizer)
        self.rates, self.recovery = rates, RATES[rates]
        self.tried = {one.name: one for one in grid.tried.get(size, ())}
        self.methods = {*COMPARED, *(only or (*grid.first, *grid.rest, *self.tried))}
        self.out = results_folder(folder, rates) / f"{self.name}.json"
        self.record: JsonObject = json.loads(self.out.read_text()) if self.out.exists() else self._begun()
        self.taught: dict[str, Any] = {}

    def run(self) -> None:
        """Measure every cell while there is time."""
        self._base()
        tried = [
            [one.name for one in some] for _, some in groupby(self.tried.values(), lambda one: one.steps)
        ]
        for methods in (self.grid.first, self.grid.rest, *tried):
            for strength in self.grid.strengths:
                for method in (one for one in methods if one in self.methods):
                    if self.left() < 0:
                        print(f"{self.name}: no time left at {strength.name}, {method}", flush=True)
                        return
                    self._cell(strength, method)

    def _begun(self) -> JsonObject:
        device = torch.cuda.get_device_name() if self.device == "cuda" else "cpu"
        settings = {name: asdict(train) for name, train in self.recovery.items()}
        grid = {key: value for key, value in asdict(self.grid).items() if key not in ("sizes", "strengths")}
        return {
            "size": self.size,
            "seed": self.seed,
            "shape": asdict(self.shape),
            "grid": grid,
            "rates": self.rates,
            "recovery": settings,
            "device": device,
            "tools": cost.tools(),
            "cases": [{"id": case.id, "group": case.group} for case in self.material.asked],
            "models": {},
        }

    # ------------------------------------------------------------------------------------- models

    def _base(self) -> None:
        """Train the base, unless it exists."""
        if (self._folder(BASE) / "config.json").exists():
            return
        model = build_model(self.shape, self.seed, self.pad, self.end, self.device)
        self.record["parameters"] = sum(p.numel() for p in model.parameters())
        made = packs(self.material.base, self.grid.base_tokens, self.pad, self.seed, every=True)
        epochs = self.grid.epochs * sum(len(pack.counts) for pack in made)
        steps = self.grid.base_steps.get(self.size, epochs)
        rate = self.grid.base_lrs.get(self.size, self.grid.base_lr)
        self.record["base"] = self._learn(model, made, steps, rate, warmup=min(1.0, 100 / steps))
        self.record["base"]["scores"] = self._scored(_in_bf16(model))
        _save_state(model, self._exact())
        self._write(BASE, model)
        self._save()

    def _folder(self, name: str) -> Path:
        return self.folder / "models" / f"{self.name}-{name}"

    def _exact(self) -> Path:
        """The base's weights as they were trained; its folder has them in BF16."""
        return self.folder / f"{self.name}-base.safetensors"

    def _write(self, name: str, model: nn.Module) -> None:
        draft = self.folder / "models" / f"draft-{self.name}-{name}"
        hf.write_folder(draft, hf.weights_of(model), self.shape, self.tokenizer)  # type: ignore[arg-type]  # a Qwen3
        draft.rename(self._folder(name))

    def _tuned(self, strength: Strength) -> Path:
        """The folder of a fine-tune, in BF16; trained if it does not exist. Without a step, the base's."""
        folder = self._folder(strength.name if strength.steps else BASE)
        if (folder / "config.json").exists():
            return folder
        model, base = self._start()
        chosen = list(self.material.tune)
        random.Random(f"study {self.seed} {strength.name}").shuffle(chosen)
        each = self.grid.tune_tokens or self.grid.tokens
        made = packs(rows.enough(chosen, strength.steps * each), each, self.pad, self.seed)
        record = self._learn(model, made, strength.steps, strength.lr, warmup=0.05, rank=strength.lora)
        self._write(strength.name, model)
        layers = assess(self._folder(BASE), folder, device=self.device)
        weights = sum(layer.weights for layer in layers)
        self.record["models"][strength.name] |= {
            "fine_tune": record,
            "moved": _moved(base, model.state_dict()),
            "risk": [layer.as_json(weights) for layer in layers],
        }
        return folder

    def _start(self) -> tuple[nn.Module, dict[str, torch.Tensor]]:
        """The base as a fine-tune begins with it, and its weights once more."""
        base = load_file(self._exact(), device=self.device)
        if self.grid.precision == "bf16":  # the folder has them all, and no weight is drawn by chance first
            return load_model(open_source(self._folder(BASE)), device=self.device), base
        model: nn.Module = build_model(self.shape, self.seed, self.pad, self.end, self.device)
        model.load_state_dict(base, strict=False)
        return model, base

    def _learn(
        self, model: nn.Module, made: list[Pack], steps: int, lr: float, warmup: float, rank: int = 0
    ) -> JsonObject:
        """Train with cross entropy over the learned tokens of the packs, with float32 weights or masters and BF16
        products. rank: of adapters; 0 trains every weight."""
        precision = self.grid.precision
        settings = Train(
            lr=lr, warmup=warmup, weight_decay=0.1, precision=precision, quantized=False, compile=False
        )
        if precision == "bf16":
            model.to(torch.bfloat16)
        weights = None
        if rank:
            names = make_plan(model, Layers()).layers
            weights = adapt(model, names, Lora(rank=rank, alpha=2.0 * rank), self.seed)
        loop = Loop(
            Learner(model, settings),
            self._here(made),
            shuffled(made, steps, self.seed),
            settings,
            weights=weights,
        )
        return _finished(loop)

    # -------------------------------------------------------------------------------------- cells

    def _cell(self, strength: Strength, method: str) -> None:
        """One method on one fine-tune, unless it has been measured."""
        record = self.record["models"].setdefault(strength.name, {**asdict(strength), "methods": {}})
        if method in record["methods"]:
            return
        began = time.perf_counter()
        try:
            folder = self._tuned(strength)
            if self.taught.get("folder") != folder:
                self._listen(folder)
            began = self._now()
            model, more = self._made(method)
            seconds = self._now() - began
            record["methods"][method] = {"seconds": round(seconds, 2), **more, **self._measured(model)}
        except Exception as error:  # the other cells should still run
            traceback.print_exc()
            record["methods"][method] = {"error": f"{type(error).__name__}: {error}"[:300]}
        self._save()
        cell = {
            key: value for key, value in record["methods"][method].items() if key not in ("missed", "scores")
        }
        print(self.name, strength.name, method, f"{self._now() - began:.1f} s", json.dumps(cell), flush=True)

    def _listen(self, folder: Path) -> None:
        """Compute the teacher's hidden states of a BF16 fine-tune for the recovery and the held-out dialogues."""
        source = open_source(folder)
        model = load_model(source, device=self.device)
        learner = Learner(model, Train())
        held_out = self._here(packs(self.material.held_out, self.grid.tokens, self.pad, self.seed))
        told = self._here(packs(self.material.told, self.grid.tokens, self.pad, self.seed))
        self.taught = {
            "folder": folder,
            "source": source,
            "held_out": (held_out, said(learner, held_out)),
            "told": (told, said(learner, told)),
            "head": model.get_submodule("lm_head").weight.detach().clone(),  # type: ignore[operator]  # a module's attributes are Any or Module to torch
        }

    def _made(self, method: str) -> tuple[nn.Module, JsonObject]:
        """A fine-tune after a method, and details for the log."""
        source = self.taught["source"]
        if tried := self.tried.get(method):
            return self._recovered(tried)
        method, _, part = method.partition("-")
        if method in self.recovery:
            return self._recovered(Tried(method, self.recovery[method].lr, self.grid.recovery_steps))
        if method in ("bf16", "q4_k_m"):
            model, more = load_model(source, device=self.device), {}
            if method == "q4_k_m":
                from quantizer.experiments.study import (
                    kquant,
                )  # gguf is not installed on every training machine

                more = {"types": kquant.round_model(model)}
            return model, more
        model = quantize(calibration_run(self._job(method)))
        if part:
            weights_alone(model, ERRORS[part])
        return model, {}

    def _job(self, method: str) -> Job:
        data = Dataset(tuple(self.material.recovery), len(self.material.recovery), self.pad, "")
        name, _, times = method.partition("*")
        recipe = load_recipe(name, [f"feedback.strength={times}"] if times else [])
        needed = recipe.feedback and recipe.feedback.needs_base
        before = open_source(self._folder(BASE)) if needed else None
        return Job(recipe, self.taught["source"], data, self.device, base=before)

    def _recovered(self, tried: Tried) -> tuple[nn.Module, JsonObject]:
        job, settings = self._job(tried.method), self.recovery[tried.method]
        settings = replace(settings, lr=tried.lr, optimizer=tried.optimizer, seed=self.seed)
        job = replace(job, recipe=replace(job.recipe, train=settings))
        student = open_student(calibration_run(job), World())
        made, taught = self._lessons()
        loop = Loop(
            student.learner,
            made,
            shuffled(made, tried.steps, self.seed),
            settings,
            taught=taught if settings.loss != "ce" else None,
            head=self.taught["head"],
            weights=student.weights,
            hold=student.hold,
            refresh=student.follow,
        )
        record = _finished(loop)
        student.close()
        return student.model, {"training": record, "tried": asdict(tried)}

    def _lessons(self) -> tuple[list[Pack], list[torch.Tensor]]:
        """The dialogues of recovery, and what the fine-tune that is measured says at every learned token of them; computed
        once."""
        if "recovery" not in self.taught:
            made = self._here(packs(self.material.recovery, self.grid.tokens, self.pad, self.seed))
            teacher = Learner(load_model(self.taught["source"], device=self.device), Train())
            self.taught["recovery"] = (made, said(teacher, made))
        found: tuple[list[Pack], list[torch.Tensor]] = self.taught["recovery"]
        return found

    # ---------------------------------------------------------------------------------- measuring

    def _measured(self, model: nn.Module) -> JsonObject:
        hold_weights(model)
        made, taught = self.taught["held_out"]
        ce, kl = distance(Learner(model, Train()), made, taught, self.taught["head"])
        record = {"ce": round(ce, 5), "kl": round(kl, 5), **self._told(model), **self._scored(model)}
        drop_weights(model)
        return record

    def _told(self, model: nn.Module) -> JsonObject:
        """Cross entropy and divergence on facts in plain text."""
        if not self.material.told:
            return {}
        made, taught = self.taught["told"]
        ce, kl = distance(Learner(model, Train()), made, taught, self.taught["head"])
        return {"facts_ce": round(ce, 5), "facts_kl": round(kl, 5)}

    def _scored(self, model: Any) -> JsonObject:
        """scores: right and asked of every manner. missed: for each case with a fault, the manners that were not
        kept."""
        asked = self.material.asked
        replies = greedy(model, self.material.prompts, pad=self.pad, end=self.end, most=self.grid.reply)
        judged = [
            judge(case, read_tokens(self.tokenizer, reply, case, self.end))
            for case, reply in zip(asked, replies, strict=True)
        ]
        missed = {i: [name for name, kept in marks.items() if not kept] for i, marks in enumerate(judged)}
        return {
            "scores": {name: list(pair) for name, pair in table(judged).items()},
            "missed": {str(i): names for i, names in missed.items() if names},
        }

    # ------------------------------------------------------------------------------------- little

    def _here(self, made: list[Pack]) -> list[Pack]:
        return [pack.to(self.device) for pack in made]

    def _now(self) -> float:
        if self.device == "cuda":
            torch.cuda.synchronize()
        return time.perf_counter()

    def _save(self) -> None:
        self.out.parent.mkdir(exist_ok=True)
        draft = self.out.with_suffix(".draft")
        draft.write_text(json.dumps(self.record) + "\n", encoding="utf-8")
        draft.replace(self.out)


def _finished(loop: Loop) -> JsonObject:
    """Run a loop, and release the memory of its graphs for other processes on the device."""
    record = loop.run()
    loop.close()
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
    return record


def _save_state(model: nn.Module, path: Path) -> None:
    state = {
        name: tensor.contiguous() for name, tensor in model.state_dict().items() if name != "lm_head.weight"
    }
    save_file(state, path.with_suffix(".draft"))
    path.with_suffix(".draft").rename(path)


@torch.no_grad()
def _moved(base: dict[str, torch.Tensor], tuned: dict[str, torch.Tensor]) -> float:
    """How far a fine-tune has moved the matrices: |W' - W| / |W| over all of them."""
    names = [name for name, tensor in base.items() if tensor.ndim == 2]
    moved = sum(float((tuned[name] - base[name]).float().square().sum()) for name in names)
    return round(math.sqrt(moved / sum(float(base[name].float().square().sum()) for name in names)), 5)


@torch.no_grad()
def weights_alone(model: nn.Module, error: float) -> None:
    """Plain layers in place of a model's NVFP4 layers, with rounded weights. error: multiplies what rounding changed; with
    more than 1 the weights are no format's."""
    for layer in nvfp4_layers(model).values():
        kept = layer.weight.float()
        layer.weight.copy_(kept + error * (layer.fake_weight().float() - kept))
    detach(model)


def _in_bf16(model: nn.Module) -> nn.Module:
    """A copy of a model in BF16."""
    return copy.deepcopy(model).to(torch.bfloat16)
