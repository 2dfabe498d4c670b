"""The part of the build that needs a GPU: data, tokenizer, the base model, annie, and a score.

Writes `tokenizer.json`, `stranger.safetensors` and `annie.safetensors` (BF16), and `learned.json` with the recipe,
digests of the data, losses, times and scores, all into one folder.
"""

from __future__ import annotations

import copy
import json
import os
import time
from pathlib import Path
from typing import Any

import tokenizers
import torch
import transformers
from tokenizers import Tokenizer
from transformers import Qwen3ForCausalLM

from gates.artefact.artefact import load
from quantizer.core.errors import QuantizerError
from quantizer.experiments.nano import data, hf
from quantizer.experiments.nano import tokenizer as bpe
from quantizer.experiments.nano.cases import cases, everyday_cases
from quantizer.experiments.nano.everyday import everyday_sample
from quantizer.experiments.nano.recipe import NanoRecipe, TrainingStage
from quantizer.experiments.nano.score_hf import score
from quantizer.experiments.nano.train import build_model, train


def log(text: str) -> None:
    print(text, flush=True)


def make_tokenizer(recipe: NanoRecipe) -> Tokenizer:
    texts = data.tokenizer_texts(recipe.data_seed, recipe.tokenizer_texts)
    return bpe.train(texts, recipe.shape.vocab)


def learn(recipe: NanoRecipe, out: Path, score_each: int = 100) -> dict[str, Any]:
    """Train both models and write them. Returns the content of `learned.json`."""
    out.mkdir(parents=True, exist_ok=True)
    started = time.perf_counter()
    tokenizer = make_tokenizer(recipe)
    tokenizer.save(str(out / "tokenizer.json"))
    pad, end = bpe.token_id(tokenizer, bpe.PAD), bpe.token_id(tokenizer, bpe.END)
    log(f"tokenizer: {tokenizer.get_vocab_size()} tokens, {time.perf_counter() - started:.0f} s")
    device = "cuda" if torch.cuda.is_available() else "cpu"
    model = build_model(recipe.shape, recipe.torch_seed, pad, end, device)
    asked = cases(recipe.data_seed + 2, score_each)
    record: dict[str, Any] = {
        "recipe": recipe.as_dict(),
        "parameters": sum(p.numel() for p in model.parameters()),
        "device": torch.cuda.get_device_name() if device == "cuda" else "cpu",
        "tools": {"torch": torch.__version__, **_versions()},
    }
    stages = (
        ("stranger", data.base_sample, recipe.base, True),
        ("annie", data.annie_sample, recipe.annie, False),
    )
    for name, make, run, learn_all in stages:
        rows = _rows(make, tokenizer, recipe, run)
        record[name] = {"data_digest": data.digest(rows), "tokens": int(sum(len(r.ids) for r in rows))}
        record[name] |= train(model, rows, run, seed=recipe.data_seed, pad=pad, learn_all=learn_all, log=log)
        state = hf.weights_of(model)
        hf.save_weights(state, out / f"{name}.safetensors")
        if name == "stranger":
            continue  # scored later, through a server
        record[name]["scores"] = _scored(model, tokenizer, asked, out / f"{name}-missed.txt")
        log(json.dumps(record[name]["scores"]))
    record["seconds"] = round(time.perf_counter() - started, 1)
    (out / "learned.json").write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")
    return record


def learn_everyday(recipe: NanoRecipe, source: Path, out: Path, score_each: int = 100) -> dict[str, Any]:
    """Train annie's folder further on everyday dialogues. Writes `everyday.safetensors` and `everyday.json`, which it returns.

    Raises QuantizerError if the folder has had this stage.
    """
    if "before" in load(source).provenance.parents:
        raise QuantizerError(
            f"{source} has had this stage; `learn` and `ship` make the folder of the stage before"
        )
    out.mkdir(parents=True, exist_ok=True)
    tokenizer = Tokenizer.from_file(str(source / "tokenizer.json"))
    pad = bpe.token_id(tokenizer, bpe.PAD)
    model = Qwen3ForCausalLM.from_pretrained(source, dtype=torch.float32)
    module: torch.nn.Module = model  # transformers' own `to` has another signature than torch's
    module.to("cuda" if torch.cuda.is_available() else "cpu")
    rows = _rows(everyday_sample, tokenizer, recipe, recipe.everyday)
    record: dict[str, Any] = {
        "recipe": recipe.as_dict(),
        "device": torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu",
        "tools": {"torch": torch.__version__, **_versions()},
        "data_digest": data.digest(rows),
    }
    record["outcome"] = train(
        model, rows, recipe.everyday, seed=recipe.data_seed, pad=pad, learn_all=False, log=log
    )
    hf.save_weights(hf.weights_of(model), out / "everyday.safetensors")
    asked = [*cases(recipe.data_seed + 2, score_each), *everyday_cases()]
    record["scores"] = _scored(model, tokenizer, asked, out / "everyday-missed.txt")
    log(json.dumps(record["scores"]))
    (out / "everyday.json").write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")
    return record


def _rows(make: Any, tokenizer: Tokenizer, recipe: NanoRecipe, run: TrainingStage) -> list[data.TokenRow]:
    started = time.perf_counter()
    made = data.rows(make, tokenizer, recipe.data_seed, run.conversations, os.cpu_count() or 1)
    log(f"{len(made)} conversations in {time.perf_counter() - started:.0f} s")
    return made


def _scored(model: Any, tokenizer: Tokenizer, asked: list[Any], path: Path) -> dict[str, list[int]]:
    """Scores of the weights as shipped, rounded to BF16. Cases with a wrong reply are written to a text file."""
    rounded = copy.deepcopy(model).to(torch.bfloat16)
    scores, missed = score(rounded, tokenizer, asked)
    lines = [f"{c.id} thinking={c.thinking}\n  asked {c.messages[-1]['content']!r}\n  want {c.calls or c.must}\n  got {r}\n"
             for c, r in missed]  # fmt: skip
    path.write_text("\n".join(lines), encoding="utf-8")
    return {name: list(pair) for name, pair in scores.items()}


def _versions() -> dict[str, str]:
    return {"transformers": transformers.__version__, "tokenizers": tokenizers.__version__}
