"""docs/clients.md, from what the rows came to."""

import json
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Final

PAGE: Final = Path(__file__).parents[2] / "docs" / "clients.md"

HEAD: Final = """# Clients

What fourteen client packages (a row each) get from the gateway, asked with their own code over a real llama.cpp and annie-nano.
`make test-clients CLIENTS_PAGE=write` writes this page, and CI compares it. *Works* means that the package's own types came back; a
code is that of the 400 by which the gateway refuses what it does not serve. *auto*: a tool is declared, and the model decides; no
package hands on a raw or fenced call as text, over annie-nano and over SmolLM2-135M-Instruct.

| package | works | refused |
|---|---|---|
"""
REAL: Final = """
## A real model, with the gateway and alone

{model}, five questions at temperature 0: *calls/words/raw or fenced calls/errors* that a package hands on. *Alone* is the same
llama.cpp without the gateway. `make test-clients CLIENTS_PAGE=write CLIENTS_GGUF=FILE` writes this part; CI has no such file
(requirements/duel.txt pins the packages that hold Qwen).

|package|gateway|alone|
|---|---|---|
"""
KINDS: Final = ("call", "words", "raw", "error")
_RAW_CALL: Final = re.compile(
    r"</?\W?tool|<function|\[TOOL|```\s*json|search_memory[\"'`]?\("
    r"|[\"'](?:name|function|tool|action|arguments|parameters|query)[\"']\s*:",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class Outcome:
    """What one row came to over one server: one of `said`, `heard` (text, tools called), `refused` and `failed`."""

    package: str
    version: str
    url: str
    what: str
    said: str | None = None
    heard: tuple[str | None, list[str]] | None = None
    refused: str | None = None
    failed: str | None = None

    @property
    def kind(self) -> str:
        """What the user of a package heard: a call, words, a raw call, or an error."""
        if self.heard is None:
            return "error"
        text, calls = self.heard
        return "raw" if holds_call(text or "") else "call" if calls else "words" if text else "error"


def holds_call(text: str) -> bool:
    """Whether a text shows a call or a part of one: tags, JSON, code, or a fence around JSON."""
    return _RAW_CALL.search(text) is not None


def read(lines: str) -> list[Outcome]:
    """Outcomes from lines of JSON. A package may print what it likes between them."""
    return [Outcome(**json.loads(line)) for line in lines.splitlines() if line.startswith('{"package":')]


def render(outcomes: Sequence[Outcome]) -> str:
    """The page: a row for each package."""
    parts = [HEAD]
    for (package, version), rows in groupby(outcomes, lambda one: (one.package, one.version)):
        right, other = [], []
        for one in rows:
            what = "auto" if one.heard else one.what
            if one.refused:
                other.append(f"{what}: `{one.refused}`")
            elif not one.failed and what not in right:
                right.append(what)
        parts.append(f"| {package} {version} | {'; '.join(right)} | {'; '.join(other)} |\n")
    return "".join(parts)


def render_real(model: str, outcomes: Sequence[Outcome], alone: str) -> str:
    """The page's part on a real model: what each package's user heard, and of the engine alone."""
    parts = [REAL.format(model=model)]
    found = Counter((one.package, one.url == alone, one.kind) for one in outcomes)
    for package in dict.fromkeys(one.package for one in outcomes):
        counts = [found[package, side, kind] for side in (False, True) for kind in KINDS]
        parts.append("|{}|{}/{}/{}/{}|{}/{}/{}/{}|\n".format(package, *counts))
    return "".join(parts)
