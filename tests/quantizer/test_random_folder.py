"""A random folder of any size is the same every time."""

from pathlib import Path
from typing import Any

import pytest

INSTALL = "needs the quantizer extra: pip install -e '.[quantizer]'"
torch = pytest.importorskip("torch", reason=INSTALL)
pytest.importorskip("transformers", reason=INSTALL)
pytest.importorskip("gguf", reason=INSTALL)
pytest.importorskip("xllamacpp", reason="needs the engine's wheel: pip install -e '.[embedded]'")

from quantizer.checkpoint.source import load_model, open_source  # noqa: E402
from tests.gpu.random_folder import SHAPES, write_random  # noqa: E402
from tests.quantizer import folders  # noqa: E402

pytestmark = [pytest.mark.torch, pytest.mark.usefixtures("one_thread")]
SMALL = SHAPES["tiny"]


def test_a_random_folder_is_the_same_every_time_and_can_be_loaded(tmp_path: Path) -> None:
    count = write_random(tmp_path / "a", SMALL)
    write_random(tmp_path / "b", SMALL, shard_bytes=2**18)
    first, second = folders.load(tmp_path / "a"), folders.load(tmp_path / "b")

    assert sum(tensor.numel() for tensor in first.values()) == count
    assert first.keys() == second.keys() and all(torch.equal(first[name], second[name]) for name in first)
    model: Any = load_model(open_source(tmp_path / "b"))
    with torch.no_grad():
        logits = model(torch.arange(32).unsqueeze(0)).logits
    assert torch.isfinite(logits).all() and logits.float().std() > 0.1
