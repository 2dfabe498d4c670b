"""The fault of the demo: a live engine's file is overwritten in place with another model's weights.

llama.cpp maps its GGUF file into memory, and NVFP4 tensors are computed where they lie. Whoever writes
into that file changes what the engine says with its next token: a broken disk, a careless `cp`, a
share that two hosts write to. Nothing restarts and no health check notices; the model only loses its
manners. The stranger has the architecture of annie-nano and her vocabulary, so her tensors take the
stranger's numbers one for one.
"""

from pathlib import Path
from typing import Final

import numpy as np
from gguf import GGMLQuantizationType as Kind
from gguf import GGUFReader, ReaderTensor
from gguf.quants import dequantize, quantize

E2M1_MAX: Final = 6.0
E4M3_MAX: Final = 448.0


Patches = list[tuple[int, bytes]]
"""Where in the file, and what."""


def prepare(target: Path, source: Path) -> Patches:
    """What turns the weights of `target`, an NVFP4 file, into those of `source`, of the same architecture.

    Raises KeyError if the target has a weight that the source lacks.
    """
    weights = {one.name: dequantize(one.data, one.tensor_type) for one in GGUFReader(source).tensors}
    tensors = {one.name: one for one in GGUFReader(target).tensors}
    patches: Patches = []
    for name, tensor in tensors.items():
        if not name.endswith((".scale", ".input_scale")):  # they are written with their weight
            patches += _patches(tensor, tensors.get(name.replace(".weight", ".scale")), weights[name])
    return patches


def overwrite(target: Path, patches: Patches) -> None:
    """Write into the file as it lies there: a new one in its place would not reach the engine."""
    with target.open("r+b") as file:
        for offset, data in patches:
            file.seek(offset)
            file.write(data)


def _patches(tensor: ReaderTensor, scale: ReaderTensor | None, values: np.ndarray) -> Patches:
    """What to write where, so that the tensor says these values as nearly as its type can."""
    found: Patches = []
    if tensor.tensor_type == Kind.NVFP4:
        assert scale is not None
        whole = np.float32(np.abs(values).max() / (E2M1_MAX * E4M3_MAX))
        found.append((scale.data_offset, whole.tobytes()))
        data = _nvfp4(values / whole).tobytes()
    else:
        data = quantize(values.astype(np.float32), tensor.tensor_type).tobytes()
    assert len(data) == tensor.n_bytes, tensor.name
    return [*found, (tensor.data_offset, data)]


def _nvfp4(values: np.ndarray) -> np.ndarray:
    """ggml's NVFP4: of 64 numbers four E4M3 scales, then block by block columns j and j + 8 in one byte."""
    blocks = values.reshape(-1, 4, 16)
    scale = np.maximum(np.abs(blocks).max(axis=-1) / E2M1_MAX, 2.0**-6)
    exponent = np.floor(np.log2(scale))
    mantissa = np.round((scale / 2.0**exponent - 1.0) * 8.0)
    code = np.minimum((exponent + 7.0) * 8.0 + mantissa, 0x7E).astype(
        np.uint8
    )  # 8 eighths carry over by themselves
    step = (1.0 + (code & 7) / 8.0) * 2.0 ** ((code >> 3).astype(np.float32) - 7.0)
    grid = np.array([0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0], np.float32)
    near = np.abs(np.abs(blocks / step[..., None])[..., None] - grid).argmin(axis=-1).astype(np.uint8)
    near |= (blocks < 0).astype(np.uint8) << 3
    packed = near[..., :8] | (near[..., 8:] << 4)
    return np.concatenate([code, packed.reshape(-1, 32)], axis=-1)
