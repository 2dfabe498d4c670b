"""The serving profiles of `deploy/profiles`, as tests use them."""

import tomllib
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parents[2] / "deploy" / "profiles"
NAMES = sorted(path.stem for path in FOLDER.glob("*.toml"))


def profile(name: str) -> dict[str, Any]:
    """Its engine's table."""
    (table,) = tomllib.loads((FOLDER / f"{name}.toml").read_text("utf-8"))["engines"].values()
    return dict(table)
