"""What a plan knows of a model comes from its config.json and the headers of its shards, and from nothing else."""

import json
from pathlib import Path
from typing import Any

import pytest

INSTALL = "needs the quantizer extra: pip install -e '.[quantizer]'"
pytest.importorskip("torch", reason=INSTALL)

from quantizer.core.errors import SourceError  # noqa: E402
from quantizer.plan.model import read_model  # noqa: E402
from tests.quantizer.plan import sparse  # noqa: E402

pytestmark = pytest.mark.torch

SMALL = sparse.QWEN35_9B | {
    "vocab_size": 64,
    "hidden_size": 32,
    "intermediate_size": 64,
    "num_hidden_layers": 4,
}


def test_a_wrapped_model_is_its_text_model(tmp_path: Path) -> None:
    inner = sparse.shapes(SMALL)
    wrapped = {name.replace("model.", "model.language_model.", 1): shape for name, shape in inner.items()}
    wrapped |= {"model.visual.blocks.0.weight": (8, 8), "mtp.fc.weight": (32, 64)}
    config = {"model_type": "qwen3_5", "text_config": SMALL}

    plain = read_model(sparse.write(tmp_path / "plain", SMALL, inner))
    model = read_model(sparse.write(tmp_path / "wrapped", config, wrapped, shards=1))

    assert model.tensors == plain.tensors
    assert (model.carried, plain.carried) == (2 * (64 + 32 * 64), 0)
    assert model.stored == plain.stored + model.carried


def no_config(folder: Path) -> None:
    (folder / "config.json").unlink()


def odd_number(folder: Path) -> None:
    (folder / "config.json").write_text(json.dumps(SMALL | {"intermediate_size": "many"}))


def odd_json(folder: Path) -> None:
    (folder / "config.json").write_text("[" * 100_000)


def no_shard(folder: Path) -> None:
    (folder / "model.safetensors").unlink()


def cut_shard(folder: Path) -> None:
    with (folder / "model.safetensors").open("r+b") as file:
        file.truncate(5000)


def outside(folder: Path) -> None:
    (folder / "model.safetensors.index.json").write_text('{"weight_map": {"a": "../model.safetensors"}}')


def no_embedding(folder: Path) -> None:
    sparse.write_shard(folder / "model.safetensors", {"model.norm.weight": (8,)})


FAULTS = [
    (no_config, "there is no config.json"),
    (odd_number, "intermediate_size must be a positive whole number, not 'many'"),
    (odd_json, "cannot be read as JSON"),
    (no_shard, "there is no safetensors file"),
    (cut_shard, "cut off or damaged"),
    (outside, "is not the name of a file in the folder"),
    (no_embedding, "holds no matrix model.embed_tokens.weight"),
]


@pytest.mark.parametrize("spoil, words", FAULTS, ids=[fault.__name__ for fault, _ in FAULTS])
def test_a_damaged_folder_is_one_line(spoil: Any, words: str, tmp_path: Path) -> None:
    folder = sparse.write(tmp_path / "model", SMALL, sparse.shapes(SMALL), shards=1)
    spoil(folder)
    with pytest.raises(SourceError, match=words) as error:
        read_model(folder)
    assert "\n" not in str(error.value)
