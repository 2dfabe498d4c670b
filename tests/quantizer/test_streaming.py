"""A model that is never there as a whole: read, run, written and compared in parts, with the numbers of the whole one."""

import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest

INSTALL = "needs the quantizer extra: pip install -e '.[quantizer]'"
torch = pytest.importorskip("torch", reason=INSTALL)
pytest.importorskip("transformers", reason=INSTALL)

from hypothesis import given, settings  # noqa: E402
from hypothesis import strategies as st  # noqa: E402
from safetensors import safe_open  # noqa: E402

from quantizer.checkpoint import source as sources  # noqa: E402
from quantizer.checkpoint.shards import ShardTensor, write_weights  # noqa: E402
from quantizer.checkpoint.source import load_model  # noqa: E402
from quantizer.checkpoint.streamed import open_streamed  # noqa: E402
from quantizer.core.decoder import decoder_layers  # noqa: E402
from quantizer.nano import conversations  # noqa: E402
from quantizer.ptq import quantize  # noqa: E402
from quantizer.recipes.recipe import Recipe, load_recipe  # noqa: E402
from tests.quantizer import folders, tiny  # noqa: E402

pytestmark = [pytest.mark.torch, pytest.mark.usefixtures("one_thread")]
BATCHES = [folders.batch(0, padded=True), folders.batch(1)]


# --------------------------------------------------------------------------------------------- a recipe's whole way


@pytest.mark.parametrize(
    "name, build",
    [("default", tiny.qwen3), ("awq_lite", tiny.qwen3), ("awq_mse", tiny.qwen3_5), ("careful", tiny.qwen3_5)],
)
def test_layer_by_layer_the_same_bytes_are_written(
    name: str, build: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, data = folders.save(build, tmp_path / "source"), conversations.write(tmp_path / "rows.jsonl", 3)
    recipe, made = load_recipe(name, ["calibrate.conversations=3"]), []
    for way in (True, False):
        monkeypatch.setattr(Recipe, "streamed", way)
        out = tmp_path / str(way)
        made.append(quantize.run(recipe, source, data, out, now=folders.NOW, device="cpu"))

    assert made[0].files == made[1].files
    first, second = (one.provenance.recipe["outcome"] for one in made)
    assert first["check"] == second["check"] and first.get("awq") == second.get("awq")


# ------------------------------------------------------------------------------------------------------- layerwise


# ----------------------------------------------------------------------------------------------------------- reading


@pytest.mark.parametrize("build", [*folders.BUILDS, partial(tiny.decoder, "gemma3_text"), tiny.qwen3_moe])
@pytest.mark.parametrize("tied", [True, False])
def test_a_streamed_model_gives_the_logits_of_the_loaded_one(build: Any, tied: bool, tmp_path: Path) -> None:
    source = folders.bare(build, tmp_path / "source", tie_word_embeddings=tied)
    loaded: Any = load_model(source)
    streamed = open_streamed(source, "cpu")
    for index, layer in enumerate(decoder_layers(streamed)):
        sources.fill(layer, source.folder, source.names, "cpu", f"model.layers.{index}.")
    batch = BATCHES[1]
    with torch.no_grad():
        wanted = loaded(input_ids=batch.ids).logits
        found = streamed(input_ids=batch.ids).logits

    assert torch.equal(found, wanted)
    if tied:
        assert loaded.lm_head.weight is loaded.model.embed_tokens.weight


# ----------------------------------------------------------------------------------------------------------- writing

DTYPES = {"F32": torch.float32, "BF16": torch.bfloat16, "U8": torch.uint8, "F8_E4M3": torch.float8_e4m3fn}
planned = st.lists(
    st.lists(st.tuples(st.sampled_from(sorted(DTYPES)), st.integers(1, 9)), min_size=1, max_size=4),
    min_size=1,
    max_size=6,
)


def group(number: int, shapes: list[tuple[str, int]]) -> list[ShardTensor]:
    def make(dtype: str, size: int) -> Any:
        whole = (torch.arange(size) % 7).to(DTYPES[dtype])
        return lambda: whole.split(2)  # in parts

    return [
        ShardTensor(f"{number}.{i}.{dtype}.{size}", dtype, (size,), make(dtype, size))
        for i, (dtype, size) in enumerate(shapes)
    ]


@settings(max_examples=60, deadline=None)
@given(planned, st.integers(1, 200))
def test_any_plan_becomes_sound_shards(plan: list[list[tuple[str, int]]], shard_bytes: int) -> None:
    import tempfile

    groups = [group(number, shapes) for number, shapes in enumerate(plan)]
    with tempfile.TemporaryDirectory() as text:
        place = Path(text)
        write_weights(place, groups, shard_bytes)
        read: dict[str, Any] = {}
        for path in sorted(place.glob("*.safetensors")):
            with safe_open(path, "pt") as file:
                read |= {name: (path.name, file.get_tensor(name)) for name in file.keys()}  # noqa: SIM118
        index = place / "model.safetensors.index.json"
        places = json.loads(index.read_text())["weight_map"] if index.exists() else {}

    assert len(read) == sum(map(len, groups)) and places in (
        {},
        {name: shard for name, (shard, _) in read.items()},
    )
    for one in groups:
        assert len({read[tensor.name][0] for tensor in one}) == 1
        for tensor in one:
            assert torch.equal(read[tensor.name][1].float(), torch.cat(list(tensor.make())).float())


# ------------------------------------------------------------------------------------------------------------ parity
