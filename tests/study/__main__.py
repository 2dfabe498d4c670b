"""`python -m tests.study [ROWS]`: the tables of docs/study from rows of docs/study/real.py, and its picture from those in the repository."""

import json
import lzma
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, Final

import numpy as np

from gates.stats.binomial import wilson_lower, wilson_upper
from quantizer.data.dataset import chosen_rows

ROOT: Final = Path(__file__).parents[2]
PLACE: Final = ROOT / "docs" / "study"
KINDS: Final = {"exact": "exact calls", "bfcl": "calls of other tools (BFCL)", "speech": "well-mannered speech", "said": "facts said",
                "irrelevance": "refusals", "mtbench": "MT-bench", "instruction": "instructions"}  # fmt: skip
SHOWN: Final = {("q4_k_m", "Q4_K_M"): "#7d3c98", ("default", "W4A16"): "#2a78b5", ("default", "W4A4"): "#c0392b",
                ("qad 1e-4 x2", "W4A4"): "#1e8449"}  # fmt: skip
DRAWS: Final = 4_000
Rows = list[dict[str, Any]]


@cache
def weights(kind: str, count: int, seeds: int) -> tuple[Any, Any]:
    """How often each draw takes a prompt, and a seed. Turns of a conversation are drawn together."""
    held = chosen_rows(ROOT / "quantizer/data/sets/voice/held_out.jsonl.xz", 1_000, 1)
    turns = [
        (number, "exact" if message.get("tool_calls") else "speech")
        for number, row in enumerate(held)
        for message in row.messages
        if message["role"] == "assistant"
    ]
    of = np.array([number for number, one in turns if one == kind] or range(count))
    random, units = np.random.default_rng(1), int(of.max()) + 1
    return (
        random.multinomial(units, np.full(units, 1 / units), DRAWS)[:, of],
        random.multinomial(seeds, np.full(seeds, 1 / seeds), DRAWS),
    )


def share(part: Any, whole: Any, kind: str) -> tuple[float, float, float, int, int]:
    """Of replies [seeds, prompts] the share of whole's that part has, its bounds of 95 % and both counts. Prompts and seeds are
    drawn with repetition; no interval is narrower than Wilson's."""
    few, all_ = int(part.sum()), int(whole.sum())
    prompts, seeds = weights(kind, part.shape[1], len(part))
    sums = [(prompts @ one.T * seeds).sum(1) for one in (part, whole)]
    low, high = np.percentile(sums[0][sums[1] > 0] / sums[1][sums[1] > 0], (2.5, 97.5))
    return few / all_, min(low, wilson_lower(few, all_, 0.975)), max(high, wilson_upper(few, all_, 0.975)), few, all_  # fmt: skip


def replies(rows: Rows, lr: str, way: str, numerics: str, kind: str) -> tuple[Any, Any, Any]:
    """[seeds, prompts]: right in BF16, in plain W4A4, and here."""
    by_cell = {
        (row["seed"], row["lr"], row["way"], row["numerics"]): row[kind] for row in rows if kind in row
    }
    cells = (("bf16", "BF16"), ("default", "W4A4"), (way, numerics))
    seeds = [seed for seed in (1, 2, 3) if all((seed, lr, *cell) in by_cell for cell in cells)]
    before, plain, now = (np.array([list(map(int, by_cell[seed, lr, *cell])) for seed in seeds]) for cell in cells)  # fmt: skip
    return before, plain, now


def text(found: tuple[float, float, float, int, int]) -> str:
    return "{:.0f} ({:.0f}–{:.0f})".format(*(100 * one for one in found[:3]))


def table(rows: Rows, lr: str) -> Iterator[str]:
    """Every cell of a strength: percent of what BF16 had right, and how many are lost and gained; of the calls lost by plain W4A4 the share brought back."""
    kinds = [kind for kind in KINDS if all(kind in row for row in rows)]
    yield "| " + " | ".join(["", *(KINDS[kind] for kind in kinds), "calls back", "KL, nats"]) + " |"
    yield "|---" * (len(kinds) + 3) + "|"
    for way, numerics in dict.fromkeys((row["way"], row["numerics"]) for row in rows if row["lr"] == lr):
        cells = [f"{way}, {numerics}"]
        for kind in kinds:
            before, _, now = replies(rows, lr, way, numerics, kind)
            if not before.any():
                cells.append("")
                continue
            lost, gained = (before * (1 - now)).sum(), ((1 - before) * now).sum()
            cells.append(f"{text(share(before * now, before, kind))} of {before.sum()}, −{lost} +{gained}")
        before, plain, now = replies(rows, lr, way, numerics, "exact")
        gone = before * (1 - plain)
        cells.append(f"{text(share(gone * now, gone, 'exact'))} of {gone.sum()}" if gone.any() else "")
        mine = [row["kl"] for row in rows if (row["lr"], row["way"], row["numerics"]) == (lr, way, numerics)]
        cells.append(", ".join(f"{kind} {np.mean([one[kind][0] for one in mine]):.3f}" for kind in mine[0]))
        yield "| " + " | ".join(cells) + " |"


def equally_hard(rows: Rows, lr: str, way: str, numerics: str) -> Iterator[str]:
    """Percent of likeliest tokens that change, by BF16's lead there (borders of 0.5, 1, 2, 4 and 8 nats), and of replies that do not."""
    mine = [row for row in rows if (row["lr"], row["way"], row["numerics"]) == (lr, way, numerics)]
    for kind in mine[0]["by_margin"] if mine else ():
        levels = np.sum([row["by_margin"][kind] for row in mine], axis=0)
        yield f"{way} {numerics} {kind}: " + ", ".join(f"{100 * b / max(1, a):.1f} of {a}" for a, b in levels)
    for kind in mine[0].get("same", ()) if mine else ():
        same = np.array([row["same"][kind] for row in mine]) < 0
        yield f"{way} {numerics} {kind}: the same text {text(share(same, np.ones_like(same), kind))}"


def picture(rows: Rows, strengths: list[str]) -> Iterator[str]:
    """SVG: what is kept against the strength of the fine-tune, by numerics."""
    yield '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 920 500" font-family="sans-serif" font-size="12">\n<rect width="920" height="500" fill="#fff"/>'
    for panel, kind in enumerate(list(KINDS)[:4]):
        left, foot = 45 + 460 * (panel % 2), 210 + 230 * (panel // 2)
        yield f'<text x="{left}" y="{foot - 180}" font-size="14">{KINDS[kind]} kept, % of BF16 (95 %)</text>'
        for y in range(0, 101, 20):
            yield f'<path d="M{left} {foot - 1.6 * y:.0f}h400" stroke="#ddd"/><text x="{left - 30}" y="{foot + 4 - 1.6 * y:.0f}">{y}</text>'
        for step, lr in enumerate(strengths):
            yield f'<text x="{left + 10 + 360 * step // (len(strengths) - 1)}" y="{foot + 18}">{lr}</text>'
        for place, ((way, numerics), colour) in enumerate(SHOWN.items()):
            points = []
            for step, lr in enumerate(strengths):
                before, _, now = replies(rows, lr, way, numerics, kind)
                if before.any():
                    x = left + 20 + 360 * step // (len(strengths) - 1) + 5 * place - 7
                    middle, low, high = (foot - 160 * one for one in share(before * now, before, kind)[:3])
                    points.append(f"{x},{middle:.0f}")
                    yield f'<path d="M{x} {low:.0f}V{high:.0f}" stroke="{colour}"/><circle cx="{x}" cy="{middle:.0f}" r="3" fill="{colour}"/>'
            yield f'<polyline points="{" ".join(points)}" fill="none" stroke="{colour}" stroke-width="2"/>'
    for place, ((way, numerics), colour) in enumerate(SHOWN.items()):
        yield f'<text x="{60 + 160 * place}" y="488" fill="{colour}">{way}, {numerics}</text>'
    yield '<text x="705" y="488">across: the fine-tune\'s peak rate</text></svg>\n'


def main() -> None:
    file = Path(sys.argv[1]) if sys.argv[1:] else PLACE / "grid.jsonl.xz"
    data = file.read_bytes()
    rows = [json.loads(line) for line in (lzma.decompress(data) if file.suffix == ".xz" else data).splitlines()]  # fmt: skip
    strengths = sorted({row["lr"] for row in rows}, key=float)
    for model in dict.fromkeys(row.get("model", "") for row in rows):
        mine = [row for row in rows if row.get("model", "") == model]
        for lr in (one for one in strengths if any(row["lr"] == one for row in mine)):
            print(f"\n{model} {lr}\n", *table(mine, lr), sep="\n")
            print(
                *(line for way, numerics in SHOWN for line in equally_hard(mine, lr, way, numerics)), sep="\n"
            )
    if not sys.argv[1:]:
        (PLACE / "real.svg").write_text("\n".join(picture(rows, strengths)), "utf-8")


if __name__ == "__main__":
    main()
