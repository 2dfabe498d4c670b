"""`python -m tests.study [ROWS]`: the tables and the picture of docs/study from the rows of its first study."""

import json
import lzma
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from gates.stats.binomial import wilson_lower, wilson_upper

PLACE: Final = Path(__file__).parents[2] / "docs" / "study"
SHOWN: Final = (
    ("default", "W4A16", "#2a78b5"),
    ("default", "W4A4", "#c0392b"),
    ("qad 1e-4 x2", "W4A4", "#1e8449"),
)
Rows = list[dict[str, Any]]


def kept(rows: Rows, lr: str, way: str, numerics: str, check: str) -> tuple[int, int, int]:
    """Of what was right in BF16, over all seeds: kept, right; and gained."""
    by_cell = {(row["seed"], row["lr"], row["way"], row["numerics"]): row for row in rows}
    pairs = [
        pair
        for (seed, *cell), row in by_cell.items()
        if cell == [lr, way, numerics] and check in row
        for pair in zip(by_cell[seed, lr, "bf16", "BF16"][check], row[check], strict=True)
    ]
    return pairs.count(("1", "1")), sum(one == "1" for one, _ in pairs), pairs.count(("0", "1"))


def interval(kept: int, right: int) -> tuple[float, float]:
    """Wilson's, of 95 %."""
    return wilson_lower(kept, right, 0.975), wilson_upper(kept, right, 0.975)


def share(kept: int, right: int) -> str:
    """Percent, with Wilson's interval."""
    low, high = interval(kept, right) if right else (0.0, 1.0)
    return f"{100 * kept / max(1, right):.0f} ({100 * low:.0f}–{100 * high:.0f})"


def table(rows: Rows, lr: str) -> Iterator[str]:
    """Every cell of a strength."""
    checks = ("exact", "speech", "said", "four")
    yield "| | seeds | exact calls kept, lost/gained | speech | facts said | of four | KL call, speech, fact, prose |"
    yield "|---|---|---|---|---|---|---|"
    for way, numerics in dict.fromkeys((row["way"], row["numerics"]) for row in rows if row["lr"] == lr):
        mine = [row for row in rows if (row["lr"], row["way"], row["numerics"]) == (lr, way, numerics)]
        found = [kept(rows, lr, way, numerics, check) for check in checks]
        lost, gained = found[0][1] - found[0][0], found[0][2]
        kl = [
            f"{sum(row['kl'][kind][0] for row in mine) / len(mine):.3f}"
            for kind in ("call", "speech", "fact", "prose")
        ]
        cells = [f"{way}, {numerics}", str(len(mine)), *(share(one, right) for one, right, _ in found)]
        cells[2] += f", {lost}/{gained}"
        yield "| " + " | ".join([*cells, ", ".join(kl)]) + " |"


def equally_hard(rows: Rows, lr: str, way: str, numerics: str) -> Iterator[str]:
    """The share of likeliest tokens that change, by BF16's lead there (borders of 0.5, 1, 2, 4 and 8 nats)."""
    mine = [row for row in rows if (row["lr"], row["way"], row["numerics"]) == (lr, way, numerics)]
    for kind in ("call", "speech", "fact", "prose"):
        sums = [[sum(row["by_margin"][kind][level][i] for row in mine) for i in (1, 0)] for level in range(6)]
        yield f"{way} {numerics} {kind}: " + ", ".join(share(*one) for one in sums)


def picture(rows: Rows, strengths: list[str]) -> str:
    """SVG: what is kept against the strength of the fine-tune, by numerics."""
    out = ['<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 920 320" font-family="sans-serif" font-size="12">', '<rect width="920" height="320" fill="#fff"/>']  # fmt: skip
    for panel, (check, title) in enumerate((("exact", "exact calls"), ("said", "facts said"))):
        left = 45 + 460 * panel
        out.append(f'<text x="{left}" y="20" font-size="14">{title} kept, % of BF16 (95 %)</text>')
        out += [f'<path d="M{left} {260 - 2.2 * y}h400" stroke="#ddd"/><text x="{left - 30}" y="{264 - 2.2 * y}">{y}</text>' for y in range(0, 101, 20)]  # fmt: skip
        for place, (way, numerics, colour) in enumerate(SHOWN):
            points = []
            for step, lr in enumerate(strengths):
                x = left + 20 + 360 * step / max(1, len(strengths) - 1) + 3 * (place - 1)
                one, right, _ = kept(rows, lr, way, numerics, check)
                if right:
                    low, high = interval(one, right)
                    points.append(f"{x:.0f},{260 - 220 * one / right:.0f}")
                    out.append(f'<path d="M{x:.0f} {260 - 220 * low:.0f}V{260 - 220 * high:.0f}" stroke="{colour}"/>')  # fmt: skip
                if not place:
                    out.append(f'<text x="{x - 10:.0f}" y="278">{lr}</text>')
            out.append(f'<polyline points="{" ".join(points)}" fill="none" stroke="{colour}" stroke-width="2"/><text x="{60 + 200 * place}" y="308" fill="{colour}">{way}, {numerics}</text>')  # fmt: skip
    return "\n".join([*out, '<text x="640" y="308">across: the fine-tune\'s peak rate</text></svg>', ""])


def main() -> None:
    file = Path(sys.argv[1]) if sys.argv[1:] else PLACE / "real.jsonl.xz"
    rows = [json.loads(line) for line in lzma.decompress(file.read_bytes()).splitlines()]
    strengths = sorted({row["lr"] for row in rows} - {"0"}, key=float)
    for lr in sorted({row["lr"] for row in rows}, key=float):
        print(f"\n{lr}\n", *table(rows, lr), *equally_hard(rows, lr, "default", "W4A4"), sep="\n")
    (PLACE / "real.svg").write_text(picture(rows, strengths), "utf-8")


if __name__ == "__main__":
    main()
