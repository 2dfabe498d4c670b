"""What an embeddings engine may add to its vectors is bounded before any of it is built."""

import tracemalloc

import pytest

from app.api.embeddings import Embeddings
from app.errors.tree import EngineBroke

SIZE = 4 << 20
USAGE = {
    "lists": b'{"a":[' + b"[]," * (SIZE // 3) + b"1]}",
    "objects": b'{"a":[' + b"{}," * (SIZE // 3) + b"{}]}",
    "members": b"{" + b",".join(b'"%d":1' % number for number in range(SIZE // 12)) + b"}",
}


@pytest.mark.parametrize("name", USAGE)
async def test_the_usage_of_vectors_is_bounded(name: str) -> None:
    raw = b'{"data":[{"embedding":[0.5]}],"usage":' + USAGE[name] + b"}"
    tracemalloc.start()
    try:
        with pytest.raises(EngineBroke) as caught:
            Embeddings().hand_on(raw, "annie")
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert caught.value.code == "upstream_too_large"
    assert peak < 2 * len(raw)
