"""The fuzzing corpus of safetensors headers; the other targets' is in tests/fuzz."""

from pathlib import Path

import pytest

INSTALL = "needs the quantizer extra: pip install -e '.[quantizer]'"
pytest.importorskip("torch", reason=INSTALL)

CORPUS = Path(__file__).parent.parent / "fuzz/corpus/safetensors"


def test_the_corpus_of_safetensors_headers_is_answered_rightly() -> None:
    from tests.fuzz.weights import safetensors

    inputs = sorted(CORPUS.iterdir())
    assert inputs
    for path in inputs:
        safetensors(path.read_bytes())
