"""The chain's base: the shipped thin fine-tune, read back from its Q2_K file into a Hugging Face folder.

annie-nano-thin-ptq is the thinnest fine-tune of the study of the stranger (1e-5 for 100 steps) in two or three bits a weight. At
6.8M plain NVFP4 takes no manners (docs/study), so what the gate refuses here was taught too little and rounded too far.
"""

import shutil
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import torch
from gguf import MODEL_ARCH, GGUFReader, get_tensor_name_map
from gguf.quants import dequantize
from safetensors.torch import load_file, save_file

from gates.artefact.artefact import MANIFEST, Provenance, load, seal
from tests.chain.settings import MODELS

THIN: Final = MODELS / "annie-nano-thin-ptq"
TEMPLATE: Final = MODELS / "annie-nano-hf"
"""Of the same shape, vocabulary and templates."""
LAYERS: Final = 8


def write_base(folder: Path, *, thin: bool) -> str:
    """Write the folder, sealed; its root digest. thin: else it is annie-nano."""
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(TEMPLATE, folder)
    if not thin:
        return load(folder).root
    (folder / MANIFEST).unlink()
    names = get_tensor_name_map(MODEL_ARCH.QWEN3, LAYERS)
    tensors = {one.name: one for one in GGUFReader(next(THIN.glob("*.gguf"))).tensors}
    state = {}
    for name, before in load_file(TEMPLATE / "model.safetensors").items():
        tensor = tensors[f"{names.get_name(name.removesuffix('.weight'))}.weight"]
        values = torch.from_numpy(dequantize(tensor.data, tensor.tensor_type).copy())
        state[name] = values.reshape(before.shape).to(before.dtype)
    save_file(state, folder / "model.safetensors", metadata={"format": "pt"})
    shipped = load(THIN)
    origin = Provenance(shipped.provenance.base_model, {"base": shipped.root}, {"from": "gguf-q2_k"})
    return seal(
        folder, name=shipped.name, format="hf-bf16", created=datetime.now(UTC), provenance=origin
    ).root
