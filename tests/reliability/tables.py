"""Tries every fault of the wire, and writes the tables of docs/reliability.md from what was found.

    python -m tests.reliability.tables [--soak FILE]

Without `--soak` the figures of the last soak stay. What the tables are made from lies beside them.
"""

import argparse
import json
import shutil
import tempfile
from pathlib import Path
from typing import Any

import uvloop

from tests.reliability import endless
from tests.reliability.faults import FAULTS, place, rehearse

DOCS = Path(__file__).parents[2] / "docs"
FIGURES = DOCS / "reliability"
NAMES = {"rss_mib": "memory (resident, MiB)"}


async def try_all() -> list[dict[str, Any]]:
    """Every fault, without and with an engine to fall back on."""
    with tempfile.TemporaryDirectory() as folder:
        async with place(Path(folder)) as at:
            return [await rehearse(at, name, model) for name in FAULTS for model in ("alone", "fallback")]


async def try_endless() -> list[dict[str, Any]]:
    """Every kind of endless reply, one after the other."""
    with tempfile.TemporaryDirectory() as folder:
        async with endless.place(Path(folder)) as at:
            return [await endless.attempt(at, name) for name in endless.KINDS]


def endless_table(rows: list[dict[str, Any]]) -> str:
    """One line an ending, with the kinds that end so."""
    kinds: dict[str, list[str]] = {}
    most: dict[str, float] = {}
    for row in rows:
        told = {200: "an error frame "}.get(row["status"], f"{row['status']} ")
        heard = "the reply, whole" if row["ending"] == "[DONE]" else f"{told}`{row['ending']}`"
        kinds.setdefault(heard, []).append(row["kind"])
        most[heard] = max(most.get(heard, 0.0), row["above_rest_mib"])
    lines = ["| endless | the caller hears | memory over rest, at most, MiB |", "|---|---|---|"]
    lines += [f"| {'; '.join(names)} | {heard} | {most[heard]:g} |" for heard, names in kinds.items()]
    return "\n".join(lines)


def fault_table(rows: list[dict[str, Any]]) -> str:
    """One line for the faults of which a caller hears the same."""
    by = {(row["fault"], row["model"]): row for row in rows}
    kinds: dict[tuple[str, str, int], list[str]] = {}
    for name in FAULTS:
        alone, fallback = by[name, "alone"], by[name, "fallback"]
        left = sum(row["open_requests"] + row["open_connections"] for row in (alone, fallback))
        kinds.setdefault((_heard(alone), _heard(fallback), left), []).append(name)
    lines = [
        "| fault of the wire | one engine: the caller hears | with a fallback | left open |",
        "|---|---|---|---|",
    ]
    lines += [f"| {'; '.join(names)} | {' | '.join(map(str, heard))} |" for heard, names in kinds.items()]
    return "\n".join(lines)


def _heard(row: dict[str, Any]) -> str:
    if not row["code"]:
        return "the whole reply" + (", from the other engine" if row["failovers"] else "")
    if row["status"] == 200:
        return f"the beginning, then one error frame `{row['code']}`"
    return f"{row['status']} `{row['code']}`"


def soak_table(found: dict[str, Any]) -> str:
    """The load that was held, and what the process held meanwhile."""
    asked = ", ".join(f"{name} {count}" for name, count in sorted(found["requests"].items()))
    total, promotions = sum(found["requests"].values()), sum(found["promotions"].values())
    good = found["promotions"].get("succeeded", 0)
    lines = [
        f"{found['seconds']:.0f} s, {found['callers']} callers, {total} requests ({total / found['seconds']:.0f} a second), "
        f"{promotions} promotions under load ({good} succeeded), on {found['machine']}, shared with other work "
        f"(load average {found['load_average']}). **{found['wrong']} replies lost or wrong, "
        f"{found['internal_errors']} internal errors: {'passed' if found['passed'] else 'failed'}.**",
        "",
        f"Asked: {asked}.",
        "",
        "| held by the gateway | median | highest | slope, a minute | at rest before | at rest after | flat |",
        "|---|---|---|---|---|---|---|",
    ]
    for one in found["held"]:
        name = NAMES.get(one["what"], one["what"])
        flat = "yes" if one["flat"] else "**no**"
        lines.append(
            f"| {name} | {one['median']:g} | {one['highest']:g} | {one['slope']:+.2f} | {one['before']:g} | {one['after']:g} | {flat} |"
        )
    return "\n".join(lines)


def put(text: str, name: str, table: str) -> str:
    """The document with this table between its marks."""
    begin, end = f"<!-- {name} -->\n", f"<!-- /{name} -->"
    before, _, rest = text.partition(begin)
    _, _, after = rest.partition(end)
    assert rest and after, f"no marks for {name}"
    return f"{before}{begin}\n{table}\n\n{end}{after}"


def main() -> None:
    """Try, keep, write."""
    ask = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    ask.add_argument("--soak", type=Path)
    asked = ask.parse_args()
    FIGURES.mkdir(exist_ok=True)
    if asked.soak:
        shutil.copyfile(asked.soak, FIGURES / "soak.json")
    rows = uvloop.run(try_all())
    (FIGURES / "faults.json").write_text(json.dumps(rows, indent=1) + "\n")
    floods = uvloop.run(try_endless())
    (FIGURES / "endless.json").write_text(json.dumps(floods, indent=1) + "\n")
    document = DOCS / "reliability.md"
    text = put(document.read_text(), "faults", fault_table(rows))
    text = put(text, "endless", endless_table(floods))
    text = put(text, "soak", soak_table(json.loads((FIGURES / "soak.json").read_text())))
    document.write_text(text)


if __name__ == "__main__":
    main()
