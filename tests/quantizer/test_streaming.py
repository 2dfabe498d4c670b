"""A model that is never there as a whole: read, run, written and compared in parts, with the numbers of the whole one."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

INSTALL = "needs the quantizer extra: pip install -e '.[quantizer]'"
torch = pytest.importorskip("torch", reason=INSTALL)
pytest.importorskip("transformers", reason=INSTALL)

from hypothesis import given, settings  # noqa: E402
from hypothesis import strategies as st  # noqa: E402
from safetensors import safe_open  # noqa: E402
from safetensors.torch import save_file  # noqa: E402

from gates.artefact import artefact  # noqa: E402
from quantizer.checkpoint import source as sources  # noqa: E402
from quantizer.checkpoint.shards import ShardTensor, ShardWriter, layout, write_weights  # noqa: E402
from quantizer.checkpoint.source import load_model  # noqa: E402
from quantizer.checkpoint.streamed import open_streamed  # noqa: E402
from quantizer.core.layerwise import decoder_layers  # noqa: E402
from quantizer.layers.linear import nvfp4_layers  # noqa: E402
from quantizer.nano import conversations  # noqa: E402
from quantizer.ptq import parity, quantize  # noqa: E402
from quantizer.ptq.parity import Parity, compare, outputs, served_model  # noqa: E402
from quantizer.recipes.recipe import load_recipe  # noqa: E402
from quantizer.verify import folder as folders_read  # noqa: E402
from quantizer.verify.folder import open_folder  # noqa: E402
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
        monkeypatch.setattr(quantize, "streams", lambda recipe, way=way: way)
        out = tmp_path / str(way)
        made.append(quantize.run(recipe, source, data, out, now=folders.NOW, device="cpu"))

    assert made[0].files == made[1].files
    first, second = (one.provenance.recipe["outcome"] for one in made)
    assert first["check"] == second["check"] and first.get("awq") == second.get("awq")


def test_a_layer_is_there_only_while_it_is_worked_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source, data = (
        folders.save(tiny.qwen3_5, tmp_path / "source"),
        conversations.write(tmp_path / "rows.jsonl", 1),
    )
    seen: list[list[int]] = []
    write = ShardWriter.write

    def look(writer: ShardWriter) -> None:
        write(writer)
        model = opened[0]
        there = [i for i, one in enumerate(decoder_layers(model)) if not next(one.parameters()).is_meta]
        assert model.get_submodule("lm_head").weight.is_meta
        assert model.get_submodule("model.embed_tokens").weight.is_meta
        seen.append(there)

    def opening(*args: Any) -> Any:
        opened.append(open_streamed(*args))
        return opened[0]

    opened: list[Any] = []
    monkeypatch.setattr(ShardWriter, "write", look)
    monkeypatch.setattr(quantize, "open_streamed", opening)
    quantize.run(load_recipe("default", []), source, data, tmp_path / "out", now=folders.NOW, device="cpu")

    assert [one for one in seen if one] == [[0], [1], [2], [3]]


# ------------------------------------------------------------------------------------------------------- layerwise


# ----------------------------------------------------------------------------------------------------------- reading


@pytest.mark.parametrize("build", [*folders.BUILDS, *folders.OTHERS])
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


@settings(max_examples=40, deadline=None)
@given(
    st.integers(0, 7), st.integers(1, 5), st.integers(1, 200), st.sampled_from([torch.bfloat16, torch.uint8])
)
def test_parts_are_the_tensor(height: int, width: int, limit: int, dtype: Any) -> None:
    import tempfile

    tensor = torch.arange(height * width, dtype=torch.float32).reshape(height, width).to(dtype)
    with tempfile.TemporaryDirectory() as place, pytest.MonkeyPatch.context() as patch:
        save_file({"a": tensor, "b": torch.tensor(3.0)}, Path(place) / "model.safetensors")
        patch.setattr(folders_read, "PART_BYTES", limit)
        held = open_folder(Path(place))
        parts = list(held.parts("a"))
        assert torch.equal(torch.cat([part for _, part in parts]), tensor)
        assert all(len(part) == 1 or part.nbytes <= limit for _, part in parts if part.numel())
        assert torch.equal(held.copy("a"), tensor) and held.copy("b").item() == 3


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
        hashed = write_weights(place, groups, shard_bytes)
        read: dict[str, Any] = {}
        for path in sorted(place.glob("*.safetensors")):
            with safe_open(path, "pt") as file:
                read |= {name: (path.name, file.get_tensor(name)) for name in file.keys()}  # noqa: SIM118
            assert hashed[path.name] == (path.stat().st_size, hashlib.sha256(path.read_bytes()).hexdigest())
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


@given(planned, st.integers(1, 200))
def test_every_tensor_begins_at_a_multiple_of_its_width(
    plan: list[list[tuple[str, int]]], shard_bytes: int
) -> None:
    for shard in layout([group(number, shapes) for number, shapes in enumerate(plan)], shard_bytes):
        at = 0
        for tensor in (tensor for one in shard for tensor in one):
            assert at % tensor.width == 0
            at += tensor.bytes


@pytest.mark.parametrize(
    "made, words",
    [
        ([torch.zeros(3)], "4 bytes fewer than were planned"),
        ([torch.zeros(4).double()], "was planned as F32 and is torch.float64"),
    ],
)
def test_what_is_not_as_planned_is_not_written(made: list[Any], words: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=words):
        write_weights(tmp_path, [[ShardTensor("a", "F32", (4,), lambda: made)]])


def test_sealing_reads_no_shard_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[str] = []
    own = artefact.hash_file

    def hash_file(path: Path) -> tuple[int, str]:
        read.append(path.name)
        return own(path)

    monkeypatch.setattr(artefact, "hash_file", hash_file)
    data = conversations.write(tmp_path / "rows.jsonl", 1)
    full = folders.save(tiny.qwen3, tmp_path / "full")
    made = quantize.run(
        load_recipe("default", []), full, data, tmp_path / "out", now=folders.NOW, device="cpu"
    )

    assert read.count("model.safetensors") == 1  # the source's
    monkeypatch.undo()
    assert artefact.verify(tmp_path / "out") == []
    again = artefact.describe(tmp_path / "out", name=made.name, format=made.format, created=folders.NOW)
    assert again.root == made.root


# ------------------------------------------------------------------------------------------------------------ parity


def test_logits_are_compared_in_slices_as_they_are_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = folders.bare(tiny.qwen3_5, tmp_path / "source")
    model = folders.attached(source)
    out = folders.export(model, source, tmp_path / "out")
    with torch.no_grad():
        nvfp4_layers(model)["model.layers.1.mlp.up_proj"].weight.mul_(1.1)
    served = served_model(out)
    found = set[Parity]()
    for vocabulary, tokens in ((8192, 2048), (7, 2048), (8192, 5), (5, 3)):
        monkeypatch.setattr("quantizer.checkpoint.streamed.HEAD_ROWS", vocabulary)
        monkeypatch.setattr(parity, "TOKENS", tokens)
        found.add(compare(model, served, BATCHES))
    (one,) = found
    assert not one.holds and one.tokens == 124 and 0 < one.same_choice < 124


def test_the_proof_has_one_decoder_layer_of_the_folder_at_a_time(tmp_path: Path) -> None:
    source = folders.bare(tiny.qwen3_5, tmp_path / "source")
    served: Any = served_model(folders.export(folders.attached(source), source, tmp_path / "out"))
    layers: Any = decoder_layers(served)[0].layers
    outputs(served, BATCHES)

    assert layers.index == 3
    assert (
        sum(one.numel() for one in served.parameters() if not one.is_meta) == served.model.norm.weight.numel()
    )
