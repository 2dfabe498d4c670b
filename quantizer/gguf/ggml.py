"""Call ggml's own quantizer from Python: the wheel `xllamacpp` has llama.cpp as one shared library that exports ggml's C functions.

The package `gguf` can read K-quants but not write them; the library packs rows as llama-quantize does.
"""

import ctypes
import importlib.util
import os
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import Final

import numpy as np
from gguf import GGML_QUANT_SIZES
from gguf import GGMLQuantizationType as Type

SLICE: Final = 2**20
"""Weights that a thread packs at a time."""


class GgmlError(RuntimeError):
    """The library is missing, or a tensor does not fit a type."""


@cache
def _library() -> ctypes.CDLL:
    spec = importlib.util.find_spec("xllamacpp")
    if spec is None or spec.origin is None:
        raise GgmlError("xllamacpp is not installed: pip install xllamacpp==2026.10.11549")
    found = sorted(Path(spec.origin).parent.glob("xllamacpp*.so"))
    if not found:
        raise GgmlError("no shared library beside xllamacpp")
    library = ctypes.CDLL(str(found[0]))
    # size_t ggml_quantize_chunk(enum ggml_type, const float * src, void * dst, int64_t start,
    #                            int64_t nrows, int64_t n_per_row, const float * imatrix);  [ggml.h]
    library.ggml_quantize_chunk.restype = ctypes.c_size_t
    library.ggml_quantize_chunk.argtypes = [
        ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_int64,
        ctypes.c_void_p,
    ]  # fmt: skip
    return library


def row_bytes(kind: Type, columns: int) -> int:
    """The bytes of a row of `columns` numbers. Raises GgmlError if it is not a whole number of blocks."""
    block, size = GGML_QUANT_SIZES[kind]
    if columns % block:
        raise GgmlError(f"a row of {columns} is not a multiple of {block}, which {kind.name} needs")
    return columns // block * size


def quantize(weights: np.ndarray, kind: Type) -> np.ndarray:
    """float32 [rows, columns] to packed uint8 [rows, bytes of a row], by ggml, in several threads."""
    rows, columns = weights.shape
    source = np.ascontiguousarray(weights, dtype=np.float32)
    packed = np.zeros((rows, row_bytes(kind, columns)), dtype=np.uint8)
    step = max(1, SLICE // columns)

    def pack(first: int) -> int:
        some = slice(first, min(first + step, rows))
        return _library().ggml_quantize_chunk(
            int(kind), source[some].ctypes.data, packed[some].ctypes.data, 0, len(source[some]), columns, None
        )

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        written = sum(pool.map(pack, range(0, rows, step)))
    if written != packed.nbytes:
        raise GgmlError(f"ggml wrote {written} bytes of {kind.name}, expected {packed.nbytes}")
    return packed
