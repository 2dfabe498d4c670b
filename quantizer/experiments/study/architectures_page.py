"""Write the page of other architectures: `python -m quantizer.experiments.study architectures-report docs/study`."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from quantizer.experiments.study.results import share, write_between_marks

PAGE, RESULTS = "architectures.md", "architectures"
BEGIN: Final = "<!-- made by python -m quantizer.experiments.study architectures-report -->"
FOLDERS: Final = ("default", "gptq", "qad")
FILES: Final = ("q8_0", "q4_k_m", "nvfp4")
Record = Mapping[str, Any]


def write(folder: Path) -> None:
    """Write architectures.md between its marks from the raw results."""
    write_between_marks(folder / PAGE, "Other architectures", BEGIN, [*made(read(folder)), ""])


def read(folder: Path) -> list[Record]:
    """The results of every architecture, in the order of their names."""
    return [json.loads(path.read_text("utf-8")) for path in sorted((folder / RESULTS).glob("*.json"))]


def made(records: Sequence[Record]) -> Iterator[str]:
    """The table, line by line: a column for each architecture."""
    yield "| | " + " | ".join(f"`{one['name']}`" for one in records) + " |"
    yield "|---" * (len(records) + 1) + "|"
    for name, row in _rows().items():
        yield f"| {name} | " + " | ".join(row(one) for one in records) + " |"
    refused = {found["refused"] for one in records for found in one.values() if _refused(found)}
    yield ""
    yield "Refused, in these words: " + "; ".join(f'"{words}"' for words in sorted(refused)) + "."


def _rows() -> dict[str, Any]:
    rows: dict[str, Any] = {
        "parameters": lambda one: f"{one['learned']['parameters']:,}",
        "trained on, padded tokens": lambda one: (
            f"{sum(stage['padded_tokens'] for stage in one['learned']['stages']):,}"
        ),
        "steps, last loss": lambda one: ", then ".join(
            f"{stage['steps']:,}, {stage['loss']}" for stage in one["learned"]["stages"]
        ),
        "**manners**, untrained": lambda one: _share(one["learned"]["untrained"]),
        "manners, BF16": lambda one: _share(one["bf16"]),
    }
    rows |= {f"manners, `{name}`": lambda one, name=name: _share(one[name]) for name in FOLDERS}
    rows |= {f"parity and `verify`, `{name}`": lambda one, name=name: _proof(one[name]) for name in FOLDERS}
    rows["**manners of the cases a GGUF can be asked**, BF16"] = lambda one: _share(one["bf16"]["hermes"])
    rows["the same, `qad`"] = lambda one: _share(one["qad"]["hermes"])
    for kind in FILES:
        rows[f"llama.cpp, {kind}"] = lambda one, kind=kind: _served(one[f"gguf {kind}"])
        rows[f"types of {kind}"] = lambda one, kind=kind: ", ".join(one[f"gguf {kind}"].get("types", "-"))
    rows["facts, BF16"] = lambda one: "{} of {}".format(*one["bf16"]["facts"])
    rows["minutes, all steps"] = lambda one: f"{_seconds(one) / 60:.1f}"
    return rows


def _share(found: Record) -> str:
    """Kept and asked, and Wilson's interval of 95 %."""
    right, asked = found["manners"]
    value, low, high = (100 * one for one in share(right, asked))
    return f"{right} of {asked}: {value:.0f} % ({low:.0f} to {high:.0f})"


def _proof(found: Record) -> str:
    parity = found["parity"]
    return f"{parity['equal']:,} of {parity['tokens']:,} tokens equal, {'sound' if found['sound'] else 'not sound'}"


def _served(found: Record) -> str:
    if _refused(found):
        return "refused"
    return _share(found["served"]) if "served" in found else "not asked"


def _refused(found: Any) -> bool:
    return isinstance(found, dict) and "refused" in found


def _seconds(one: Record) -> float:
    return sum(found["seconds"] for found in one.values() if isinstance(found, dict) and "seconds" in found)
