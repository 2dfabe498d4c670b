"""What a run of the chain has found so far, in one file: written after every step, and read when it goes on."""

import json
import time
from collections.abc import Callable
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

from tests.bench.machine import facts
from tests.bench.peers import output

Figures = dict[str, Any]
Work = Callable[[], Figures]
PACKAGES: Final = ("torch", "transformers", "xllamacpp", "gguf", "aiohttp", "numpy")


class Record:
    """`steps` by name: what each found, and the seconds that it took."""

    def __init__(self, path: Path, said: Callable[[str], None] = print) -> None:
        self.path, self._said = path, said
        self.found: Figures = json.loads(path.read_text("utf-8")) if path.exists() else {"steps": {}}

    @property
    def steps(self) -> dict[str, Figures]:
        """The steps that are done, in their order."""
        steps: dict[str, Figures] = self.found["steps"]
        return steps

    def step(self, name: str, work: Work) -> Figures:
        """Do a step, unless an earlier run did it."""
        if name in self.steps:
            return self.steps[name]
        self._said(f"{datetime.now(UTC):%H:%M:%S} {name}")
        began = time.monotonic()
        found = work()
        found = {"seconds": round(time.monotonic() - began, 1), **found}
        self.steps[name] = found
        self.save()
        return found

    def save(self) -> None:
        """The whole file or the one before."""
        draft = self.path.with_suffix(".draft")
        draft.write_text(json.dumps(self.found, indent=1, ensure_ascii=False) + "\n", "utf-8")
        draft.replace(self.path)


def machine(vllm_version: str) -> Figures:
    """The machine and the packages of a run. vllm_version: "vllm 0.24.0"."""
    return {
        **facts(),
        "date": f"{datetime.now(UTC):%Y-%m-%d}",
        "commit": output(["git", "rev-parse", "--short", "HEAD"]) or "not known",
        "gpu": output(["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]) or "none",
        "packages": {name: version(name) for name in PACKAGES} | dict([vllm_version.split(" ", 1)]),
    }
