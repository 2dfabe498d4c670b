"""What four-bit activations cost: the same NVFP4 weights with inputs as they are (W4A16) and rounded (W4A4), beside BF16.

Each pair is a BF16 folder and the NVFP4 folder that was made of it; all three are decoded greedily on the same held-out
cases, in memory, and judged as the study judges. A row counts cases: manners kept, knowledge right, replies equal to BF16's. `python -m quantizer.experiments.study.activations --out FILE
BF16 NVFP4 [BF16 NVFP4 …]`; `--tune DIR` takes each fine-tune of a study's DIR and makes the NVFP4 folder by `default`.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import torch
from tokenizers import Tokenizer

from quantizer.checkpoint.source import load_model, open_source
from quantizer.core import cost
from quantizer.experiments.nano.cases import HeldOutCase, cases, judge
from quantizer.experiments.nano.recipe import NANO
from quantizer.experiments.nano.rows import write
from quantizer.experiments.nano.score_hf import read_tokens
from quantizer.experiments.nano.template import render
from quantizer.experiments.study import material
from quantizer.experiments.study.decode import greedy
from quantizer.experiments.study.grid import GRID
from quantizer.experiments.study.results import FACTS, MANNERS, percent
from quantizer.ptq import quantize as ptq
from quantizer.recipes.recipe import load_recipe
from quantizer.reference.model import reference_model

NUMERICS: Final = ("BF16", "W4A16", "W4A4")
Row = dict[str, Any]


def measure(
    pairs: Sequence[tuple[Path, Path]], each: int, device: str, reply: int = GRID.reply
) -> dict[str, Any]:
    """A row of each numerics for each pair (BF16 folder, NVFP4 folder). each: cases of a category; reply: tokens at most."""
    rows: list[Row] = []
    for plain, packed in pairs:
        tokenizer = Tokenizer.from_file(str(plain / "tokenizer.json"))
        asked, prompts = _asked(tokenizer, each)
        replies: dict[str, list[list[int]]] = {}
        for name in NUMERICS:
            began = time.perf_counter()
            pad, end = material.ends(tokenizer)
            replies[name] = greedy(_model(name, plain, packed, device), prompts, pad=pad, end=end, most=reply)
            seconds = round(time.perf_counter() - began, 1)
            row = {
                "model": packed.name,
                "numerics": name,
                "seconds": seconds,
                **_counts(asked, replies[name], tokenizer, end),
            }
            rows.append(
                row | {"same": sum(a == b for a, b in zip(replies[name], replies["BF16"], strict=True))}
            )
            print(json.dumps(rows[-1]), flush=True)
    return {
        "device": cost.device_name(torch.device(device)),
        "tools": cost.tools(),
        "each": each,
        "rows": rows,
    }


def table(found: dict[str, Any]) -> str:
    """The rows in Markdown, with Wilson's intervals."""
    lines = [
        "| model | numerics | manners kept, % | knowledge right, % | replies equal to BF16's |",
        "|---|---|---|---|---|",
    ]
    for row in found["rows"]:
        cells = (
            percent(*row["manners"]) or "–",
            percent(*row["knowledge"]) or "–",
            f"{row['same']} of {row['manners'][1]}",
        )
        lines.append(f"| {row['model']} | {row['numerics']} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _model(name: str, plain: Path, packed: Path, device: str) -> Any:
    if name == "BF16":
        return load_model(open_source(plain), device=device)
    return reference_model(packed, device, weight_only=name == "W4A16")


def _asked(tokenizer: Tokenizer, each: int) -> tuple[list[HeldOutCase], list[list[int]]]:
    """Cases and prompts, without those that are longer than the study's."""
    pairs = []
    for case in cases(NANO.data_seed + 2, each):
        text = render(case.messages, case.tools, style=case.style, thinking=case.thinking)
        prompt = tokenizer.encode(text, add_special_tokens=False).ids
        if len(prompt) <= GRID.prompt:
            pairs.append((case, prompt))
    return [case for case, _ in pairs], [prompt for _, prompt in pairs]


def _counts(asked: list[HeldOutCase], replies: list[list[int]], tokenizer: Tokenizer, end: int) -> Row:
    """[right, asked] of manners, by case, and of knowledge."""
    judged = [
        judge(case, read_tokens(tokenizer, reply, case, end))
        for case, reply in zip(asked, replies, strict=True)
    ]
    known = [marks for marks in judged if not marks.keys().isdisjoint(FACTS)]
    return {
        "manners": [sum(all(kept for name, kept in marks.items() if name in MANNERS) for marks in judged), len(judged)],
        "knowledge": [sum(all(kept for name, kept in marks.items() if name in FACTS) for marks in known), len(known)],
    }  # fmt: skip


def quantized(folder: Path, data: Path, out: Path, device: str) -> Path:
    """The NVFP4 folder of a fine-tune by the recipe `default`, made if it is not there."""
    if not out.exists():
        ptq.run(load_recipe("default"), folder, data, out, now=datetime.now(UTC), device=device)
    return out


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="python -m quantizer.experiments.study.activations", description=__doc__
    )
    option = parser.add_argument
    option(
        "folders",
        nargs="*",
        type=Path,
        metavar="DIR",
        help="a BF16 folder, then the NVFP4 folder made of it; and so on",
    )
    option("--tune", type=Path, metavar="DIR", help="a study's folder: all fine-tunes in its models/")
    option("--out", type=Path, required=True, metavar="FILE", help="JSON; the table goes to stdout")
    option("--each", type=int, default=GRID.cases, help="held-out cases of a category (default: %(default)s)")
    option("--device", help="a torch device (default: a GPU if there is one)")
    given = parser.parse_args()
    device = cost.chosen_device(given.device)
    pairs = list(zip(given.folders[::2], given.folders[1::2], strict=True))
    if given.tune:
        data = write(given.tune / "activations.jsonl", 512)
        for folder in sorted((given.tune / "models").glob("*/config.json")):
            source = folder.parent
            pairs.append((source, quantized(source, data, given.tune / "nvfp4" / source.name, device)))
    found = measure(pairs, given.each, device)
    given.out.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    print(table(found))


if __name__ == "__main__":
    main()
