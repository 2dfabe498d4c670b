"""Nano models of other architectures, trained from nothing and taken through the quantizer: `python -m
quantizer.experiments.study.architectures OUT`.

Llama, Gemma 3 and Qwen3-MoE learn Annie's conversations. Then each is rounded (PTQ), brought back (QAD), checked by its
own bytes, asked the held-out cases before and after, and written as GGUF that a real llama.cpp server answers from, or
refused by name.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import shutil
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import torch
from tokenizers import Tokenizer
from torch import nn
from transformers import (
    Gemma3ForCausalLM,
    Gemma3TextConfig,
    LlamaConfig,
    LlamaForCausalLM,
    Qwen3MoeConfig,
    Qwen3MoeForCausalLM,
)

from quantizer.checkpoint.source import load_model, open_source
from quantizer.core import cost
from quantizer.core.errors import QuantizerError
from quantizer.experiments.nano import data, rows
from quantizer.experiments.nano import tokenizer as bpe
from quantizer.experiments.nano.cases import HeldOutCase, ModelReply, cases, facts, judge
from quantizer.experiments.nano.recipe import NANO, TrainingStage
from quantizer.experiments.nano.score_hf import replies
from quantizer.experiments.nano.serving import answers
from quantizer.experiments.nano.train import train
from quantizer.experiments.study.results import MANNERS
from quantizer.ptq import quantize
from quantizer.recipes.recipe import load_recipe
from quantizer.reference.model import reference_model
from quantizer.train import run as train_run
from quantizer.verify.check import verify

JsonObject = dict[str, Any]
SIZE: Final[Mapping[str, Any]] = {
    "hidden_size": 256,
    "intermediate_size": 768,
    "num_hidden_layers": 6,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 64,
    "max_position_embeddings": 2048,
    "tie_word_embeddings": True,
}
EXPERTS: Final[Mapping[str, Any]] = {
    "num_experts": 6,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 256,
    "norm_topk_prob": True,
}
WINDOWS: Final[Mapping[str, Any]] = {
    "layer_types": ["sliding_attention", "sliding_attention", "full_attention"] * 2,
    "sliding_window": 128,
}
KINDS: Final[Mapping[str, tuple[Any, Any, Mapping[str, Any]]]] = {
    "llama": (LlamaForCausalLM, LlamaConfig, {}),
    "gemma3": (Gemma3ForCausalLM, Gemma3TextConfig, WINDOWS),
    "qwen3_moe": (Qwen3MoeForCausalLM, Qwen3MoeConfig, EXPERTS),
}
GGUFS: Final = ("q8_0", "q4_k_m", "nvfp4")
HERMES: Final = "hermes"
"""The style of calls of the template that a GGUF file has."""


@dataclass(frozen=True, slots=True)
class Effort:
    """How much is done. stages: of training; all but the last learn every token, the last one the assistant's alone. cases:
    held-out ones of each kind. changes: to the recipes."""

    stages: tuple[TrainingStage, ...]
    cases: int
    rows: int
    more: Mapping[str, Any]
    changes: tuple[str, ...]


LARGE: Final = Effort(
    (TrainingStage(conversations=60_000, epochs=2, tokens_per_step=32_768, lr=1.5e-3),),
    cases=24,
    rows=1024,
    more={},
    changes=("train.lr=3e-5", "train.max_steps=200", "train.batch_tokens=8192", "train.micro_tokens=8192"),
)
SMALL: Final = Effort(
    (
        TrainingStage(conversations=2_500, epochs=1, tokens_per_step=2048, lr=2e-3, warmup=50),
        TrainingStage(conversations=1_500, epochs=1, tokens_per_step=2048, lr=1e-3, warmup=20),
    ),
    cases=4,
    rows=128,
    more={"intermediate_size": 256, "num_hidden_layers": 3},
    changes=("train.lr=1e-4", "train.max_steps=60", "train.batch_tokens=2048", "train.micro_tokens=2048"),
)
"""A training in minutes on one CPU core, with rows that are whole blocks of Q4_K."""
TINY: Final = Effort(
    (TrainingStage(conversations=8, epochs=1, tokens_per_step=2048, warmup=1),) * 2,
    cases=1,
    rows=6,
    more={"hidden_size": 64, "head_dim": 16, "intermediate_size": 128, "moe_intermediate_size": 64},
    changes=("train.max_steps=2", "train.batch_tokens=512", "train.micro_tokens=512"),
)
EFFORTS: Final = {"large": LARGE, "small": SMALL, "tiny": TINY}
PTQ: Final = ("default", "gptq")


class Nano:
    """One architecture's model in a folder of its own."""

    def __init__(self, name: str, out: Path, tokenizer: Path, effort: Effort) -> None:
        self.name, self.folder, self.effort = name, out / name, effort
        self.tokenizer, self.files = Tokenizer.from_file(str(tokenizer)), tokenizer.parent
        self.device = cost.default_device()
        seed = NANO.data_seed + 2
        self.asked: list[HeldOutCase] = [
            *cases(seed, effort.cases),
            *facts(seed, effort.cases, effort.cases),
        ]

    @property
    def source(self) -> Path:
        return self.folder / "bf16"

    def run(self, save: Callable[[JsonObject], None]) -> None:
        """Every step; what one of them refuses or fails at is its result, and the others go on."""
        record: JsonObject = {
            "name": self.name,
            "device": cost.device_name(torch.device(self.device)),
            "tools": cost.tools("xllamacpp"),
            "effort": asdict(self.effort),
        }
        steps: dict[str, Callable[[], JsonObject]] = {"learned": self._learn, "bf16": self._bf16}
        steps |= {name: lambda name=name: self._rounded(name) for name in PTQ}  # type: ignore[misc]  # bound now
        steps |= {"qad": self._recovered}
        steps |= {f"gguf {kind}": lambda kind=kind: self._gguf(kind) for kind in GGUFS}  # type: ignore[misc]  # bound now
        for step, work in steps.items():
            began = time.perf_counter()
            try:
                record[step] = work()
            except QuantizerError as refused:
                record[step] = {"refused": str(refused)}
            except (
                RuntimeError,
                ValueError,
                TypeError,
                LookupError,
                OSError,
            ) as error:  # another step may still work
                traceback.print_exc()
                record[step] = {"error": f"{type(error).__name__}: {error}"[:300]}
            record[step]["seconds"] = round(time.perf_counter() - began, 1)
            print(self.name, step, json.dumps(record[step]), flush=True)
            save(record)

    def _learn(self) -> JsonObject:
        kind, configure, more = KINDS[self.name]
        size = {**SIZE, **more, "vocab_size": self.tokenizer.get_vocab_size(), **self.effort.more}
        end, pad = (bpe.token_id(self.tokenizer, token) for token in (bpe.END, bpe.PAD))
        if "layer_types" in size:
            size["layer_types"] = size["layer_types"][: size["num_hidden_layers"]]
        config = configure(**size, eos_token_id=end, pad_token_id=pad, bos_token_id=None)
        torch.manual_seed(1)
        model = kind(config).to(self.device, torch.float32)
        untrained = self._asked(model)
        found = self._trained(model, pad)
        model.config.architectures = [kind.__name__]
        model.to(torch.bfloat16).save_pretrained(self.source)
        for name in (
            "tokenizer.json", "tokenizer_config.json", "chat_template.jinja", "generation_config.json",
        ):  # fmt: skip
            shutil.copy(self.files / name, self.source)
        rows.write(self.folder / "rows.jsonl", self.effort.rows)
        return {
            "stages": found,
            "parameters": sum(p.numel() for p in model.parameters()),
            "untrained": untrained,
        }

    def _trained(self, model: Any, pad: int) -> list[dict[str, float]]:
        """Train in place, each stage on conversations of its own. Returns what each one cost and reached."""
        stages, workers = self.effort.stages, os.cpu_count() or 1
        count = sum(stage.conversations for stage in stages)
        made = data.rows(data.annie_sample, self.tokenizer, NANO.data_seed, count, workers)
        found = []
        for stage in stages:
            now, made = made[: stage.conversations], made[stage.conversations :]
            last = not made
            found.append(train(model, now, stage, seed=1, pad=pad, learn_all=not last, log=print))
        return found

    def _bf16(self) -> JsonObject:
        return self._asked(load_model(open_source(self.source), device=self.device))

    def _rounded(self, name: str) -> JsonObject:
        made = quantize.run(
            load_recipe(name),
            self.source,
            self.folder / "rows.jsonl",
            self._fresh(name),
            now=datetime.now(UTC),
            device=self.device,
        )
        return self._outcome(name, made)

    def _recovered(self) -> JsonObject:
        recipe = load_recipe("qad", ["train.compile=false", *self.effort.changes])
        made = train_run.run(
            recipe,
            self.source,
            self.folder / "rows.jsonl",
            self._fresh("qad"),
            now=datetime.now(UTC),
            device=self.device,
        )
        return self._outcome("qad", made)

    def _fresh(self, name: str) -> Path:
        shutil.rmtree(self.folder / name, ignore_errors=True)
        return self.folder / name

    def _outcome(self, name: str, made: Any) -> JsonObject:
        parity = made.provenance.recipe["outcome"]["check"]["parity"]
        out = self.folder / name
        return {
            "parity": {key: parity[key] for key in ("equal", "tokens")},
            "sound": verify(out, self.source if name in PTQ else None).sound,
            **self._asked(reference_model(out, self.device)),
        }

    def _gguf(self, kind: str) -> JsonObject:
        from quantizer.gguf.write import write_gguf  # gguf is not installed on every training machine

        target = self.folder / f"{kind}.gguf"
        types = write_gguf(
            self.folder / "qad" if kind == "nvfp4" else self.source, target, kind, f"nano-{self.name}"
        )
        made = {"bytes": target.stat().st_size, "types": sorted({one.name for one in types.values()})}
        if importlib.util.find_spec("xllamacpp") is None:
            return made  # a training machine may have no engine
        asked = [case for case in self.asked if case.style == HERMES]
        return made | {"served": kept(asked, answers(target, asked))}

    def _asked(self, model: nn.Module) -> JsonObject:
        """How the held-out cases were answered: all of them, and those that a GGUF's template can ask."""
        found: Any = replies(model, self.tokenizer, self.asked)  # type: ignore[arg-type]  # of another architecture
        pairs = [pair for pair in zip(self.asked, found, strict=True) if pair[0].style == HERMES]
        return {**kept(self.asked, found), HERMES: kept(*zip(*pairs, strict=True))}


def kept(asked: Sequence[HeldOutCase], found: Sequence[ModelReply]) -> JsonObject:
    """How many cases were answered with all manners, and how many facts were right; each beside how many there are."""
    judged = [judge(case, reply) for case, reply in zip(asked, found, strict=True)]
    missed = [{name for name, good in marks.items() if not good} for marks in judged]
    known = [marks["fact"] for marks in judged if "fact" in marks]
    return {
        "manners": [sum(MANNERS.isdisjoint(one) for one in missed), len(missed)],
        "facts": [sum(known), len(known)],
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("out", type=Path, help="a folder, outside the repository")
    parser.add_argument("names", nargs="*", help=", ".join(KINDS))
    parser.add_argument(
        "--effort", choices=EFFORTS, default="large",
        help="large needs a GPU for some minutes, small a CPU core for ten, tiny learns nothing",
    )  # fmt: skip
    parser.add_argument("--tokenizer", type=Path, default=Path("models/annie-nano-hf/tokenizer.json"))
    given = parser.parse_intermixed_args()
    for name in given.names or KINDS:
        place = given.out / f"{name}.json"

        def save(record: JsonObject, place: Path = place) -> None:
            place.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")

        (given.out / name).mkdir(parents=True, exist_ok=True)
        Nano(name, given.out, given.tokenizer, EFFORTS[given.effort]).run(save)


if __name__ == "__main__":
    main()
