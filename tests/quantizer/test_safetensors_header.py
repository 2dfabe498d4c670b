"""A safetensors header is read without torch, and one that lies about its file is one error."""

import json
import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quantizer.core.errors import SourceError
from quantizer.core.safetensors_header import HeaderEntry, header_text, read_header


def file(header: Any, length: int | None = None, data: bytes = bytes(8)) -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return (len(text) if length is None else length).to_bytes(8, "little") + text + data


def entry(**changes: Any) -> dict[str, Any]:
    return {"a": {"dtype": "BF16", "shape": [2, 2], "data_offsets": [0, 8]} | changes}


LIES = {
    "empty": b"",
    "shorter than a length": b"\x01",
    "a length beyond the file": file({}, 2**64 - 1),
    "a length of nothing": file({}, 0),
    "no JSON": file(b"["),
    "deep JSON": file(b"[" * 100_000),
    "a list": file([]),
    "an entry that is a number": file({"a": 1}),
    "no offsets": file({"a": {"dtype": "BF16", "shape": [2]}}),
    "one offset": file(entry(data_offsets=[0])),
    "an end beyond the file": file(entry(data_offsets=[0, 9])),
    "an end before the begin": file(entry(data_offsets=[8, 0])),
    "an offset below zero": file(entry(data_offsets=[-8, 0])),
    "an offset that is a text": file(entry(data_offsets=["0", 8])),
    "a size below zero": file(entry(shape=[-2, -2])),
    "a size that is a truth": file(entry(shape=[True, 4])),
    "a shape that does not fit": file(entry(shape=[2, 3])),
}


@pytest.mark.parametrize("data", LIES.values(), ids=LIES)
def test_a_header_that_lies_is_refused(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "model.safetensors"
    path.write_bytes(data)
    with pytest.raises(SourceError, match="header"):
        read_header(path)


@given(st.dictionaries(st.text(min_size=1, max_size=8), st.lists(st.integers(0, 9), max_size=3), max_size=5))
def test_what_is_written_is_read(
    tmp_path_factory: pytest.TempPathFactory, sizes: dict[str, list[int]]
) -> None:
    tensors = {
        name: HeaderEntry("F16", tuple(shape), 2 * math.prod(shape))
        for name, shape in sizes.items()
        if name != "__metadata__"
    }
    path = tmp_path_factory.mktemp("shard") / "model.safetensors"
    text = header_text((name, one.dtype, one.shape, one.bytes) for name, one in tensors.items())
    path.write_bytes(text + bytes(sum(one.bytes for one in tensors.values())))
    assert read_header(path) == tensors
