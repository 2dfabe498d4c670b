"""docs/clients.md, from what the rows came to."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Final

PAGE: Final = Path(__file__).parents[2] / "docs" / "clients.md"

HEAD: Final = """# Clients

What client libraries get from the gateway, asked with their own packages over a real llama.cpp and annie-nano. Written by
`make test-clients CLIENTS_PAGE=write`, and compared with what comes out each time in CI. *Works* means that the package's own
types came back; a code is that of the 400 by which the gateway refuses what it does not serve.
"""


@dataclass(frozen=True)
class Outcome:
    """What one row came to: one of `said`, `refused` and `failed`."""

    package: str
    version: str
    what: str
    said: str | None = None
    refused: str | None = None
    failed: str | None = None

    @property
    def verdict(self) -> str:
        """As it stands in the table."""
        return f"refused: `{self.refused}`" if self.refused else "FAILED" if self.failed else "works"


def read(lines: str) -> list[Outcome]:
    """Outcomes from lines of JSON. A package may print what it likes between them."""
    return [Outcome(**json.loads(line)) for line in lines.splitlines() if line.startswith('{"package":')]


def render(outcomes: Sequence[Outcome]) -> str:
    """The page."""
    parts = [HEAD]
    for (package, version), rows in groupby(outcomes, lambda one: (one.package, one.version)):
        table = [f"| {one.what} | {one.verdict} |" for one in rows]
        parts.append("\n".join([f"\n## {package} {version}\n", "| | |", "|---|---|", *table, ""]))
    return "".join(parts)
