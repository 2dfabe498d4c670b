"""Data that all sizes and seeds share, made once: dialogues as rows of tokens, and the cases."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
from tokenizers import Tokenizer

from quantizer.data.render import TrainingSample
from quantizer.experiments.nano import annie, data
from quantizer.experiments.nano import tokenizer as bpe
from quantizer.experiments.nano.cases import HeldOutCase, cases, facts
from quantizer.experiments.nano.conversation import MarkedText as Text
from quantizer.experiments.nano.generate import conversation, needing
from quantizer.experiments.nano.recipe import NANO
from quantizer.experiments.nano.scenes import fact
from quantizer.experiments.nano.template import render
from quantizer.experiments.study.grid import DATA, Grid

Rows = list[TrainingSample]
KINDS: Final = ("stranger", "annie", "drill", "tune", "recovery", "held_out", "told")
DRILLED: Final = 7
"""Facts in a row of drills."""


@dataclass(frozen=True)
class Material:
    """base: the stranger's dialogues, then Annie's, then drills. tune, recovery, held_out: Annie's. asked, prompts: cases and
    their prompts. told: facts in plain text, to ask for."""

    base: Rows
    tune: Rows
    recovery: Rows
    held_out: Rows
    asked: list[HeldOutCase]
    prompts: list[list[int]]
    told: Rows


def place(folder: Path, grid: Grid) -> Path:
    """The file with the rows of a grid; grids differ only in the number of recovery dialogues."""
    return folder / f"material-{grid.recovery}.npz"


def recovery_sample(seed: int, index: int) -> Text:
    """Dialogues that no fine-tune and no base is trained on."""
    return data.annie_sample(seed, DATA + index)


def known_sample(seed: int, index: int) -> Text:
    """Dialogues in which a base sees Annie; no fine-tune is trained on them."""
    return data.annie_sample(seed, 2 * DATA + index)


def held_out_sample(seed: int, index: int) -> Text:
    """Dialogues that nothing is trained on."""
    return annie.sample(conversation(seed + 2, "test", index))


def drill_sample(seed: int, index: int) -> Text:
    """Some facts in plain text, as a base reads them before it is taught to talk."""
    rng = random.Random(f"drill {seed} {index}")
    told = (needing(rng, fact, "train", {}) for _ in range(DRILLED))
    return Text((("\n".join(f"{turn.user} {turn.answer}" for turn in told), True),))


def told_sample(seed: int, index: int) -> Text:
    """A fact in plain text, asked in a wording that nothing is trained on; its answer is what is learned."""
    turn = needing(random.Random(f"told {seed} {index}"), fact, "test", {})
    return Text(((f"{turn.user} ", False), (turn.answer, True)))


def write(folder: Path, grid: Grid, tokenizer: Tokenizer, workers: int) -> None:
    """Make all rows with `workers` processes, and write them to one file."""
    kinds = {
        "stranger": (data.base_sample, grid.strangers),
        "annie": (known_sample, grid.annies),
        "tune": (data.annie_sample, grid.conversations),
        "recovery": (recovery_sample, grid.recovery),
        "held_out": (held_out_sample, grid.held_out),
    }
    if grid.drills:
        kinds |= {"drill": (drill_sample, grid.drills), "told": (told_sample, grid.told)}
    arrays: dict[str, Any] = {}
    for name, (make, count) in kinds.items():
        rows = data.rows(make, tokenizer, NANO.data_seed, count, workers)
        arrays[f"{name}.ids"] = np.concatenate([row.ids for row in rows])
        arrays[f"{name}.learned"] = np.concatenate([row.learned for row in rows])
        arrays[f"{name}.sizes"] = np.array([len(row.ids) for row in rows])
    folder.mkdir(parents=True, exist_ok=True)
    whole = place(folder, grid)
    draft = whole.with_name(f"draft-{whole.name}")
    np.savez(draft, **arrays)
    draft.rename(whole)


def read(folder: Path, grid: Grid, tokenizer: Tokenizer) -> Material:
    """The rows written by `write`, and the cases."""
    with np.load(place(folder, grid)) as arrays:
        rows = {name: _rows(arrays, name) for name in KINDS if f"{name}.sizes" in arrays}
    asked = [*cases(NANO.data_seed + 2, grid.cases), *facts(NANO.data_seed + 2, grid.cases, grid.facts)]
    texts = [render(case.messages, case.tools, style=case.style, thinking=case.thinking) for case in asked]
    prompts = [tokenizer.encode(text, add_special_tokens=False).ids for text in texts]
    kept = [(case, prompt) for case, prompt in zip(asked, prompts, strict=True) if len(prompt) <= grid.prompt]
    return Material(
        rows["stranger"] + rows["annie"] + rows.get("drill", []),
        rows["tune"],
        rows["recovery"],
        rows["held_out"],
        [case for case, _ in kept],
        [prompt for _, prompt in kept],
        rows.get("told", []),
    )


def ends(tokenizer: Tokenizer) -> tuple[int, int]:
    """The ids of the padding token and of the end-of-turn token."""
    return bpe.token_id(tokenizer, bpe.PAD), bpe.token_id(tokenizer, bpe.END)


def enough(rows: Sequence[TrainingSample], tokens: int) -> Rows:
    """The first rows with at least `tokens` tokens together, or all rows."""
    kept = []
    for row in rows:
        if tokens <= 0:
            break
        kept.append(row)
        tokens -= len(row.ids)
    return kept


def _rows(arrays: np.lib.npyio.NpzFile, name: str) -> Rows:
    cuts = np.cumsum(arrays[f"{name}.sizes"])[:-1]
    ids, learned = (np.split(arrays[f"{name}.{part}"], cuts) for part in ("ids", "learned"))
    return [TrainingSample(one.astype(np.int32), marks) for one, marks in zip(ids, learned, strict=True)]
