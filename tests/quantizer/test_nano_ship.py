"""Weights of the everyday stage become annie-nano's folder and files, and say what they came from."""

from __future__ import annotations

import json
import shutil
from datetime import UTC, datetime
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="needs the quantizer extra: pip install -e '.[quantizer]'")

import torch

from gates.artefact.artefact import load, seal, verify
from quantizer.core.errors import QuantizerError
from quantizer.experiments.nano import hf
from quantizer.experiments.nano.learn import learn_everyday
from quantizer.experiments.nano.recipe import TINY
from quantizer.experiments.nano.ship import ship_everyday

SHIPPED = Path(__file__).parents[2] / "models" / "annie-nano-hf"
NOW = datetime(2026, 11, 23, tzinfo=UTC)


@pytest.fixture
def learned(tmp_path: Path) -> Path:
    """What `learn_everyday` writes: here, weights with one norm changed."""
    folder = tmp_path / "learned"
    folder.mkdir()
    state = hf.load_weights(SHIPPED / "model.safetensors")
    state["model.norm.weight"] = state["model.norm.weight"] + torch.ones((), dtype=torch.bfloat16)
    hf.save_weights(state, folder / "everyday.safetensors")
    record = {
        "recipe": TINY.as_dict(),
        "device": "a GPU",
        "tools": {"torch": "2.11.0"},
        "data_digest": f"sha256:{'0' * 64}",
        "outcome": {"steps": 3},
    }
    (folder / "everyday.json").write_text(json.dumps(record), encoding="utf-8")
    return folder


@pytest.fixture
def models(tmp_path: Path) -> Path:
    """A folder of models with annie-nano before the stage."""
    folder = tmp_path / "models" / "annie-nano-hf"
    shutil.copytree(SHIPPED, folder)
    seal(folder, name="annie-nano", format="hf-bf16", created=NOW)
    return folder.parent


def test_the_stages_weights_take_the_place_of_those_before(learned: Path, models: Path) -> None:
    before = load(models / "annie-nano-hf").root

    made = ship_everyday(learned, models, NOW)

    assert [one.format for one in made] == ["hf-bf16", "gguf-f16", "gguf-q4_k_m"]
    for name in ("annie-nano-hf", "annie-nano-f16", "annie-nano-q4_k_m"):
        assert verify(models / name) == []
    source = load(models / "annie-nano-hf")
    assert dict(source.provenance.parents) == {"before": before} and source.root != before
    assert source.provenance.recipe["everyday"]["outcome"] == {"steps": 3}
    assert {"source": source.root} == load(models / "annie-nano-q4_k_m").provenance.parents


def test_a_folder_is_trained_so_once(learned: Path, models: Path, tmp_path: Path) -> None:
    ship_everyday(learned, models, NOW)

    with pytest.raises(QuantizerError, match="has had this stage"):
        learn_everyday(TINY, models / "annie-nano-hf", tmp_path / "again")
    assert not (tmp_path / "again").exists()
