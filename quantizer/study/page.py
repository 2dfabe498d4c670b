"""The page's tables and its picture, from the rows of all seeds."""

from __future__ import annotations

import json
import lzma
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from gates.stats.binomial import wilson
from gates.stats.paired import mid_p

Row = dict[str, Any]
CHECKS: Final = ("tool", "exact", "speech", "said", "four")
LOSSES: Final = (("default", "W4A16", "#2a78b5"), ("default", "W4A4", "#c0392b"))


def load(path: Path) -> list[Row]:
    """The rows of every seed, from a packed file or a folder of plain ones."""
    if path.is_dir():
        lines = [
            line for file in sorted(path.glob("*.jsonl")) for line in file.read_text("utf-8").splitlines()
        ]
    else:
        lines = lzma.open(path, "rt", encoding="utf-8").read().splitlines()
    return [json.loads(line) for line in lines]


@dataclass(frozen=True, slots=True)
class Kept:
    """Of what was right in BF16, over all seeds: kept of right; gained of what was wrong."""

    kept: int
    right: int
    gained: int

    def __str__(self) -> str:
        low, high = wilson(self.kept, self.right) if self.right else (0.0, 1.0)
        share = self.kept / self.right if self.right else 0
        return f"{100 * share:.0f} ({100 * low:.0f}–{100 * high:.0f})"

    @property
    def p(self) -> float:
        """McNemar's mid-p of lost against gained."""
        return mid_p(self.right - self.kept, self.gained)


def paired(rows: Iterable[Row], lr: str, way: str, numerics: str, check: str) -> Kept:
    """A cell against the BF16 of its own seed."""
    found = {(row["seed"], row["way"], row["numerics"]): row for row in rows if row["lr"] == lr}
    pairs = [
        pair
        for (seed, name, kind), row in found.items()
        if (name, kind) == (way, numerics) and check in row
        for pair in zip(found[seed, "bf16", "BF16"][check], row[check], strict=True)
    ]
    return Kept(pairs.count(("1", "1")), sum(before == "1" for before, _ in pairs), pairs.count(("0", "1")))


def cells(rows: Sequence[Row], lr: str) -> list[tuple[str, str]]:
    """The cells of a strength, in the order of their rows."""
    return list(dict.fromkeys((row["way"], row["numerics"]) for row in rows if row["lr"] == lr))


def table(rows: Sequence[Row], lr: str) -> Iterable[str]:
    """All cells of a strength: what is right, what is kept of BF16's, and the divergence."""
    yield (
        "| recipe | numerics | seeds | "
        + " | ".join(CHECKS)
        + " | exact kept, % | said kept, % | speech kept, % | KL call, speech, fact, prose | s |"
    )
    yield "|---" * (len(CHECKS) + 8) + "|"
    for way, numerics in cells(rows, lr):
        mine = [row for row in rows if (row["lr"], row["way"], row["numerics"]) == (lr, way, numerics)]
        counts = [
            f"{sum(r[c].count('1') for r in mine)}/{sum(len(r[c]) for r in mine)}"
            for c in CHECKS
            if c in mine[0]
        ]
        kept = [str(paired(rows, lr, way, numerics, check)) for check in ("exact", "said", "speech")]
        kl = ", ".join(
            f"{mean([r['kl'][k][0] for r in mine]):.3f}" for k in ("call", "speech", "fact", "prose")
        )
        seconds = mean([row["seconds"] for row in mine]) if "seconds" in mine[0] else 0
        yield (
            f"| {way} | {numerics} | {len(mine)} | "
            + " | ".join([*counts, *kept, kl, f"{seconds:.0f}"])
            + " |"
        )


def alike(rows: Sequence[Row], lr: str, way: str, numerics: str) -> Iterable[str]:
    """Flips of the likeliest token by BF16's margin there, for each kind of text: equally hard tokens beside each other."""
    mine = [row for row in rows if (row["lr"], row["way"], row["numerics"]) == (lr, way, numerics)]
    for kind in sorted({kind for row in mine for kind in row["by_margin"]}):
        sums = [[sum(row["by_margin"][kind][place][i] for row in mine) for i in (0, 1)] for place in range(6)]
        yield (
            f"| {way} {numerics} | {kind} | "
            + " | ".join(f"{flips}/{n} {100 * flips / max(1, n):.1f}" for n, flips in sums)
            + " |"
        )


def matched(rows: Sequence[Row], lr: str, way: str, numerics: str, tokens: int = 8) -> str:
    """Calls and facts paired by BF16's log-likelihood of its first tokens: how many of each are said unchanged that far."""
    survived: dict[str, list[tuple[float, bool]]] = {"call": [], "fact": []}
    for row in rows:
        if (row["lr"], row["way"], row["numerics"]) != (lr, way, numerics):
            continue
        reference = next(r for r in rows if (r["seed"], r["lr"], r["numerics"]) == (row["seed"], lr, "BF16"))
        for kind, first, whole, (likely, _) in zip(
            kinds(reference), row["first"], reference["first"], reference["likely"], strict=True
        ):
            if kind in survived and whole >= tokens:
                survived[kind].append((likely / whole, first >= tokens))
    pairs = []
    left = sorted(survived["fact"])
    for likely, kept in sorted(survived["call"]):
        near = min(left, key=lambda one: abs(one[0] - likely), default=None)
        if near and abs(near[0] - likely) < 0.05:
            left.remove(near)
            pairs.append((kept, near[1]))
    calls, facts = (sum(pair[i] for pair in pairs) for i in (0, 1))
    return (
        f"| {way} {numerics} | {len(pairs)} | {Kept(calls, len(pairs), 0)} | {Kept(facts, len(pairs), 0)} |"
    )


def kinds(row: Row) -> list[str]:
    """The kind of each text of a row, in order."""
    return list(row["kinds"])


def picture(rows: Sequence[Row], strengths: Sequence[str]) -> str:
    """SVG: what is kept against the strength of the fine-tune, by numerics; exact calls and facts said."""
    panels = [("exact", "exact calls kept, % of BF16's"), ("said", "facts said kept, % of BF16's")]
    out = ['<svg xmlns="http://www.w3.org/2000/svg" width="920" height="340" viewBox="0 0 920 340" font-family="sans-serif">',
           '<rect width="920" height="340" fill="#ffffff"/>']  # fmt: skip
    lines = [*LOSSES, ("served, awq4", "W4A4", "#7d3c98"), ("qad 1e-4 x2", "W4A4", "#1e8449")]
    for number, (check, title) in enumerate(panels):
        left = 50 + 450 * number
        out.append(text(left, 22, title, 14, "start"))
        for share in range(0, 101, 20):
            y = 260 - 2.2 * share
            out.append(
                f'<line x1="{left}" y1="{y}" x2="{left + 400}" y2="{y}" stroke="#e0e0e0"/>'
                + text(left - 6, y + 4, f"{share}", 11, "end")
            )
        places = [left + 20 + 360 * i / max(1, len(strengths) - 1) for i in range(len(strengths))]
        out += [text(x, 278, lr, 11, "middle") for x, lr in zip(places, strengths, strict=True)]
        out.append(
            text(left + 200, 294, "peak learning rate of the fine-tune (thin to strong)", 11, "middle")
        )
        for place, (way, numerics, colour) in enumerate(lines):
            points = []
            for x, lr in zip(places, strengths, strict=True):
                one = paired(rows, lr, way, numerics, check)
                if one.right:
                    low, high = wilson(one.kept, one.right)
                    x += 3 * (place - 1.5)
                    points.append(f"{x:.1f},{260 - 220 * one.kept / one.right:.1f}")
                    out.append(
                        f'<line x1="{x:.1f}" y1="{260 - 220 * low:.1f}" x2="{x:.1f}" y2="{260 - 220 * high:.1f}" stroke="{colour}"/>'
                    )
            out.append(
                f'<polyline points="{" ".join(points)}" fill="none" stroke="{colour}" stroke-width="2"/>'
            )
    for place, (way, numerics, colour) in enumerate(lines):
        out.append(
            f'<rect x="{60 + 215 * place}" y="312" width="12" height="12" fill="{colour}"/>'
            + text(78 + 215 * place, 322, f"{way}, {numerics}", 12, "start")
        )
    return "\n".join([*out, "</svg>", ""])


def text(x: float, y: float, words: str, size: int, anchor: str) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="{size}" fill="#333333">{words}</text>'


def mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)
