"""The gateway decodes no field that an embeddings engine adds to its vectors."""

import tracemalloc

import pytest

from app.api.embeddings import Embeddings
from gates.reply.events import Usage

SIZE = 4 << 20
USAGE = {
    "lists": b'{"a":[' + b"[]," * (SIZE // 3) + b"1]}",
    "objects": b'{"a":[' + b"{}," * (SIZE // 3) + b"{}]}",
    "members": b"{" + b",".join(b'"%d":1' % number for number in range(SIZE // 12)) + b"}",
}


@pytest.mark.parametrize("name", USAGE)
async def test_the_usage_of_vectors_holds_two_counts(name: str) -> None:
    raw = b'{"data":[{"embedding":[0.5]}],"usage":' + USAGE[name] + b"}"
    tracemalloc.start()
    try:
        usage = Embeddings().hand_on(raw, "annie")[1]
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert usage == Usage({}) and peak < 2 * len(raw)
