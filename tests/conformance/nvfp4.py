"""annie-nano in NVFP4, for the tests on a GPU: `.venv-gpu/bin/python -m tests.conformance.nvfp4 FOLDER`.

ModelOpt's plain recipe: weights and activations in FP4, scales from the largest values seen in a few
conversations that the model was made for. It runs on a GPU or, in half a minute, on a CPU. The folder is
complete when its manifest is there, which comes last.
"""

import argparse
import json
import shutil
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import modelopt.torch.quantization as mtq
import torch
from modelopt.torch.export import export_hf_checkpoint
from transformers import AutoModelForCausalLM, AutoTokenizer

from gates.artefact.artefact import load, seal
from gates.artefact.manifest import MANIFEST, Provenance
from quantizer.nano.conversations import lines

SOURCE = Path(__file__).parents[2] / "models" / "annie-nano-hf"
RECIPE = "NVFP4_DEFAULT_CFG"
SAMPLES = 64
"""Conversations that are read."""
KEPT = ("generation_config.json", "tokenizer.json", "tokenizer_config.json", "chat_template.jinja")
"""What an export leaves out or writes in its own way, and the engine shall find as the model has it."""
TEMPLATES = "additional_chat_templates"
TOOLS = ("nvidia-modelopt", "torch", "transformers")


def conversations(tokenizer: Any) -> Iterator[str]:
    """What the model reads and writes, thoughts and calls among it."""
    for line in lines(SAMPLES):
        row = json.loads(line)
        yield tokenizer.apply_chat_template(
            row["messages"], tools=row["tools"] or None, tokenize=False, **row["chat_template_kwargs"]
        )


def quantized(source: Path) -> Any:
    """The model with its quantizers, calibrated."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    loaded: Any = AutoModelForCausalLM.from_pretrained(source, dtype=torch.bfloat16)
    model = loaded.to(device)
    tokenizer = AutoTokenizer.from_pretrained(source)

    def read_them(model: Any) -> None:
        for text in conversations(tokenizer):
            ids = tokenizer(text, add_special_tokens=False, return_tensors="pt").input_ids
            model(ids.to(device))

    with torch.inference_mode():
        return mtq.quantize(model, getattr(mtq, RECIPE), read_them)


def write(source: Path, folder: Path) -> None:
    """The checkpoint that vLLM loads, sealed."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    export_hf_checkpoint(quantized(source), export_dir=folder)
    for name in KEPT:
        shutil.copyfile(source / name, folder / name)
    shutil.copytree(source / TEMPLATES, folder / TEMPLATES)
    made = {"config": RECIPE, "calibration": {"samples": SAMPLES}}
    tools = {name: version(name) for name in TOOLS}
    parents = {"source": load(source).root}
    origin = Provenance("annie-nano", parents, made, tools=tools)
    seal(folder, name="annie-nano-nvfp4", format="hf-nvfp4", created=datetime.now(UTC), provenance=origin)


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.conformance.nvfp4", description=__doc__)
    parser.add_argument("folder", type=Path, help="where it is written; what is there is removed")
    folder = parser.parse_args().folder
    if folder.exists() and not (folder / MANIFEST).exists() and any(folder.iterdir()):
        print(f"{folder} holds something that is no artefact; name another folder", file=sys.stderr)
        return 73
    write(SOURCE, folder)
    print(f"{folder}: {load(folder).root}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
