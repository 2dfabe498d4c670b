"""`make coverage`: what the tests run of each floor and each of its rooms, in lines and in branches.

    python -m tests.coverage_report .work/coverage/coverage.json

The file is what `coverage json` writes. A floor is a top-level package, a room a folder of it.
"""

import json
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import Any

COUNTS = ("covered_lines", "num_statements", "covered_branches", "num_branches")


def totals(files: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, Counter[str]]]:
    """Counts by floor and room, summed over the files of each. A file beside the rooms belongs to room ''."""
    found: dict[str, dict[str, Counter[str]]] = defaultdict(lambda: defaultdict(Counter))
    for name, measured in files.items():
        floor, *rooms, _ = PurePosixPath(name).parts
        summary = measured["summary"]
        found[floor][rooms[0] if rooms else ""].update({count: summary[count] for count in COUNTS})
    return found


def share(covered: int, number: int) -> str:
    """A percentage, rounded down; '-' where there is nothing to cover."""
    return f"{100 * covered // number} %" if number else "-"


def row(name: str, counts: Counter[str]) -> str:
    """One line of the table: statements and branches, and how many of each were run."""
    lines, branches = counts["num_statements"], counts["num_branches"]
    return (
        f"{name:24} {lines:7} {share(counts['covered_lines'], lines):>7}"
        f" {branches:9} {share(counts['covered_branches'], branches):>9}"
    )


def table(files: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    """The lines of the whole table: each floor, and below it its rooms."""
    yield f"{'floor / room':24} {'lines':>7} {'covered':>7} {'branches':>9} {'covered':>9}"
    for floor, rooms in sorted(totals(files).items()):
        yield row(floor, sum(rooms.values(), Counter()))
        for room, counts in sorted(rooms.items()):
            yield row(f"  {room or '(beside the rooms)'}", counts)


if __name__ == "__main__":
    print("\n".join(table(json.loads(Path(sys.argv[1]).read_text("utf-8"))["files"])))
