"""The third part of the build: annie-nano in NVFP4, as a folder for vLLM and as a GGUF file of the same bits.

Every block's best scale (`mse`): of the recipes without training it comes nearest to the BF16 weights, and a strong
fine-tune needs no more. The conversations set the scales of the inputs alone. The same as, with the file that
`quantizer.experiments.nano.rows` writes,

    manners quantize ptq --recipe mse --set calibrate.conversations=64 --source models/annie-nano-hf --data FILE --out …
    manners quantize gguf models/annie-nano-nvfp4-hf --type nvfp4 --out models/annie-nano-nvfp4

Needs no GPU: two minutes of one core, most of them BF16 products, which are slow without AVX-512. The packed weights
and their scales follow from the source alone; an input scale may differ in its last bit on another kind of machine.
"""

from __future__ import annotations

import shutil
import tempfile
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from gates.artefact.artefact import Artefact
from quantizer.experiments.nano.rows import write
from quantizer.gguf.make import Job, make
from quantizer.gguf.official import Programs
from quantizer.ptq import quantize as ptq
from quantizer.recipes.load import load_recipe

RECIPE: Final = "mse"
CONVERSATIONS: Final = 64
ROWS, SEED = 512, 7  # of the file that they are drawn from: the training split, a draw of its own


def quantize(models: Path) -> list[Artefact]:
    """Make both folders anew out of `annie-nano-hf`, the GGUF file's parent first. Raises QuantizerError."""
    folder, file = models / "annie-nano-nvfp4-hf", models / "annie-nano-nvfp4"
    recipe = load_recipe(RECIPE, [f"calibrate.conversations={CONVERSATIONS}"])
    shutil.rmtree(folder, ignore_errors=True)
    shutil.rmtree(file, ignore_errors=True)
    with tempfile.TemporaryDirectory() as scratch:
        data = write(Path(scratch) / "conversations.jsonl", ROWS, SEED)
        made = ptq.run(recipe, models / "annie-nano-hf", data, folder, now=datetime.now(UTC), device="cpu")
    return [made, make(Job(folder, file, "nvfp4", Programs()), datetime.now(UTC))]
