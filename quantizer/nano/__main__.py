"""`python -m quantizer.nano`: make the folders of annie-nano in F16, Q4_K_M and NVFP4 again from `models/annie-nano-hf`.

The code that trained annie-nano and stranger-nano, and generated their conversations and the suite, is at commit f6ffe163.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from gates.artefact.manifest import Artefact
from quantizer.gguf.make import GgufJob, make_gguf
from quantizer.nano import conversations
from quantizer.ptq import quantize
from quantizer.recipes.recipe import load_recipe

MODELS: Final = Path(__file__).parents[2] / "models"
CALIBRATED: Final = 64  # the first of the conversations
RECIPE: Final = "mse"


def build(source: Path, models: Path, now: datetime) -> list[Artefact]:
    """Make and seal the four folders under `models`, replacing what is there. Raises QuantizerError."""

    def fresh(name: str) -> Path:
        shutil.rmtree(models / name, ignore_errors=True)
        return models / name

    made = [make_gguf(GgufJob(source, fresh(f"annie-nano-{kind}"), kind), now) for kind in ("f16", "q4_k_m")]
    recipe = load_recipe(RECIPE, [f"calibrate.conversations={CALIBRATED}"])
    folder = fresh("annie-nano-nvfp4-hf")
    with tempfile.TemporaryDirectory() as scratch:
        data = conversations.write(Path(scratch) / "conversations.jsonl", CALIBRATED)
        made.append(quantize.run(recipe, source, data, folder, now=now, device="cpu"))
    return [*made, make_gguf(GgufJob(folder, fresh("annie-nano-nvfp4"), "nvfp4"), now)]


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m quantizer.nano", description=__doc__)
    parser.add_argument("--models", type=Path, default=MODELS, help="where the folders go (%(default)s)")
    for artefact in build(MODELS / "annie-nano-hf", parser.parse_args().models, datetime.now(UTC)):
        print(artefact.name, artefact.format, artefact.root)


if __name__ == "__main__":
    main()
