"""docs/clients.md, from what the rows came to."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Final

PAGE: Final = Path(__file__).parents[2] / "docs" / "clients.md"

HEAD: Final = """# Clients

What client libraries get from the gateway, asked with their own packages over a real llama.cpp and annie-nano. `make test-clients
CLIENTS_PAGE=write` writes this page, and CI compares it. *Works* means that the package's own types came back; a code is that of the
400 by which the gateway refuses what it does not serve.

| package | works | refused |
|---|---|---|
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


def read(lines: str) -> list[Outcome]:
    """Outcomes from lines of JSON. A package may print what it likes between them."""
    return [Outcome(**json.loads(line)) for line in lines.splitlines() if line.startswith('{"package":')]


def render(outcomes: Sequence[Outcome]) -> str:
    """The page: a row for each package."""
    parts = [HEAD]
    for (package, version), rows in groupby(outcomes, lambda one: (one.package, one.version)):
        right, other = [], []
        for one in rows:
            if one.refused:
                other.append(f"{one.what}: `{one.refused}`")
            elif one.failed:
                other.append(f"{one.what}: FAILED")
            else:
                right.append(one.what)
        parts.append(f"| {package} {version} | {'; '.join(right)} | {'; '.join(other)} |\n")
    return "".join(parts)
