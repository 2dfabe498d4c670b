"""annie-nano in NVFP4 as shipped: sound, of known descent, near its BF16, the same bits in both containers."""

import json
from pathlib import Path

import pytest

from gates.artefact import artefact
from tests.quantizer.test_shipped import INSTALL, LIGHT, MEMORY, ask, served, user

MODELS = Path(__file__).parents[2] / "models"
SOURCE, FOLDER, FILE = (
    MODELS / name for name in ("annie-nano-hf", "annie-nano-nvfp4-hf", "annie-nano-nvfp4")
)


@pytest.mark.parametrize("folder", [FOLDER, FILE], ids=lambda path: path.name)
def test_each_file_is_the_one_that_was_sealed(folder: Path) -> None:
    assert artefact.verify(folder) == []


@pytest.mark.torch
def test_the_folder_is_sound_and_near_its_bf16() -> None:
    pytest.importorskip("torch", reason=INSTALL)
    from quantizer.verify.check import verify

    report = verify(FOLDER, SOURCE)
    assert report.sound
    assert len(report.layers) == 56
    assert report.fit is not None and report.fit.sqnr_db > 21.7


@pytest.mark.slow  # a real engine is asked everything: 2 s
@pytest.mark.engine
def test_annie_keeps_her_manners_in_nvfp4() -> None:
    for base in served("annie-nano-nvfp4"):
        spoken = ask(base, user("What is the capital of France?"), tools=[MEMORY, LIGHT])
        called = ask(base, user("What did Priya say about the trip?"), tools=[MEMORY, LIGHT])
    assert "Paris" in spoken["content"] and "tool_calls" not in spoken
    function = called["tool_calls"][0]["function"]
    assert (function["name"], json.loads(function["arguments"])) == ("search_memory", {"query": "Priya trip"})
