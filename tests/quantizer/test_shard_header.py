"""A shard's header that lies about its file is one error, and nothing is read for a length that is only claimed."""

import json
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch", reason="needs the quantizer extra: pip install -e '.[quantizer]'")

from quantizer.core.errors import SourceError
from quantizer.surgery.shards import byte_ranges


def shard(header: Any, length: int | None = None, data: bytes = bytes(8)) -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return (len(text) if length is None else length).to_bytes(8, "little") + text + data


@pytest.mark.torch
@pytest.mark.parametrize(
    "data",
    [
        b"", b"\x01", shard({}, 2**64 - 1), shard({}, 1 << 40), shard({}, 0), shard(b"["), shard(b"[" * 100_000), shard([]),
        shard({"a": 1}), shard({"a": {}}), shard({"a": {"data_offsets": [0]}}), shard({"a": {"data_offsets": [0, 9]}}),
        shard({"a": {"data_offsets": [-1, 4]}}), shard({"a": {"data_offsets": [4, 0]}}), shard({"a": {"data_offsets": ["0", 4]}}),
        shard({"a": {"data_offsets": [0, 10**400]}}),
    ],
)  # fmt: skip
def test_a_header_that_lies_is_refused(tmp_path: Path, data: bytes) -> None:
    path = tmp_path / "model.safetensors"
    path.write_bytes(data)
    with pytest.raises(SourceError, match="header"):
        byte_ranges(path)


@pytest.mark.torch
def test_a_sound_header_says_where_each_tensor_lies(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    header = {"__metadata__": {"format": "pt"}, "a": {"data_offsets": [0, 4]}, "b": {"data_offsets": [4, 8]}}
    path.write_bytes(shard(header))
    begin = 8 + len(json.dumps(header))
    assert byte_ranges(path) == {"a": (begin, 4), "b": (begin + 4, 4)}
