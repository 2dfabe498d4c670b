"""`manners serve` on free ports with a shipped model behind it."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
READY_SECONDS: Final = 120

CONFIG: Final = """
[gateway]
listen = "127.0.0.1:0"
admin  = "127.0.0.1:0"
state  = "state"

[engines.nano]
dialect  = "llama-server"
driver   = "embedded"
artefact = "{artefact}"

[models.annie]
live      = "nano"
reasoning = "{reasoning}"
timeouts  = {{ connect = 5.0, first_token = 60.0, idle = 60.0, total = 300.0 }}
"""
"""The embedded default, but for the ports, and for clocks that a busy machine may need."""


@contextmanager
def serving(model: str, reasoning: str, folder: Path) -> Iterator[str]:
    """Its public address, as long as it runs."""
    path = folder / "manners.toml"
    path.write_text(CONFIG.format(artefact=ROOT / "models" / model, reasoning=reasoning), "utf-8")
    with started("--config", str(path), home=folder) as url:
        yield url


@contextmanager
def started(*words: str, home: Path) -> Iterator[str]:
    """`manners serve` with these words: its public address, as long as it runs."""
    clean = {k: v for k, v in os.environ.items() if not k.startswith("MANNERS_")}  # no key, no other state
    child = subprocess.Popen(
        [sys.executable, "-m", "app", "serve", *words], cwd=ROOT, env=clean | {"HOME": str(home)},
        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
    )  # fmt: skip
    try:
        yield _ready(child)
    finally:
        child.terminate()
        child.communicate(timeout=60)


def _ready(child: subprocess.Popen[str]) -> str:
    """Wait until it serves; the address that it printed."""
    assert child.stdout is not None
    end, url = time.monotonic() + READY_SECONDS, ""
    for line in child.stdout:
        url = line.partition("Public: ")[2].split()[0] if "Public: " in line else url
        if line.startswith("Ready:"):
            return url
        assert time.monotonic() < end, f"not ready within {READY_SECONDS} s"
    raise AssertionError(f"the gateway ended with {child.wait()}")
