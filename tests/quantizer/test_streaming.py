"""A model that is never there as a whole: read, run, written and compared in parts, with the numbers of the whole one."""

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

INSTALL = "needs the quantizer extra: pip install -e '.[quantizer]'"
torch = pytest.importorskip("torch", reason=INSTALL)
pytest.importorskip("transformers", reason=INSTALL)

from hypothesis import given, settings  # noqa: E402
from hypothesis import strategies as st  # noqa: E402
from safetensors import safe_open  # noqa: E402

from quantizer.checkpoint import export  # noqa: E402
from quantizer.checkpoint.shards import ShardTensor, ShardWriter, write_weights  # noqa: E402
from quantizer.core import cost  # noqa: E402
from quantizer.core.errors import CheckpointError  # noqa: E402
from quantizer.nano import conversations  # noqa: E402
from quantizer.ptq import by_layer, quantize  # noqa: E402
from quantizer.ptq.scales import set_scales  # noqa: E402
from quantizer.recipes.recipe import Recipe, load_recipe  # noqa: E402
from tests.quantizer import folders, tiny  # noqa: E402

pytestmark = [pytest.mark.torch, pytest.mark.usefixtures("one_thread")]


# --------------------------------------------------------------------------------------------- a recipe's whole way


@pytest.mark.parametrize(
    "name, build",
    [("default", tiny.qwen3), ("awq_mse", tiny.qwen3_5)],
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


# ------------------------------------------------------------------------------------------------------ to go on


class AtOnce(ThreadPoolExecutor):
    """Does its work when it is given, so that the source is hashed before the first layer is written."""

    def submit(self, fn: Any, /, *args: Any, **kwargs: Any) -> Any:
        made = super().submit(fn, *args, **kwargs)
        made.result()
        return made


@pytest.mark.parametrize("name, last", [("awq_gptq", 3), ("default", 2)])
def test_what_was_interrupted_goes_on_to_the_same_bytes(
    name: str, last: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = folders.save(tiny.qwen3_5, tmp_path / "source")
    data, more = conversations.write(tmp_path / "rows.jsonl", 3), conversations.write(tmp_path / "more", 4)
    given: dict[str, Any] = {"now": folders.NOW, "device": "cpu"}
    whole = quantize.run(load_recipe(name), source, data, tmp_path / "whole", **given)
    monkeypatch.setattr(quantize, "ThreadPoolExecutor", AtOnce)
    write, seal, done, out = ShardWriter.write, export.seal, [], tmp_path / "out"

    def interrupted(writer: ShardWriter) -> None:
        write(writer)
        if writer._next + 3 - last == len(writer._turns):
            raise KeyboardInterrupt

    def sealed(*args: Any, **more: Any) -> None:
        raise KeyboardInterrupt

    def scales(*args: Any) -> None:
        done.append(1)
        set_scales(*args)

    monkeypatch.setattr(ShardWriter, "write", interrupted)
    with pytest.raises(KeyboardInterrupt):
        quantize.run(load_recipe(name), source, data, out, **given)
    monkeypatch.setattr(ShardWriter, "write", write)
    assert not out.exists()
    with pytest.raises(CheckpointError, match="continue it with --resume, or remove the folder"):
        quantize.run(load_recipe(name), source, data, out, **given)
    others: list[tuple[str, Path, Any, str]] = [
        ("mse", data, "full", "recipe"),
        (name, more, "full", "data"),
        (name, data, "none", "proof"),
    ]
    for recipe, rows, proof, words in others:
        with pytest.raises(CheckpointError, match=rf"belongs to another run \({words} differ\)"):
            quantize.run(load_recipe(recipe), source, rows, out, resume=True, proof=proof, **given)
    with monkeypatch.context() as patch:
        patch.setattr(cost, "tools", lambda *_: {"manners": "0.0"})
        with pytest.raises(CheckpointError, match=r"belongs to another run \(versions differ\)"):
            quantize.run(load_recipe(name), source, data, out, resume=True, **given)
    monkeypatch.setattr(by_layer, "set_scales", scales)
    monkeypatch.setattr(quantize, "seal", sealed)
    with pytest.raises(KeyboardInterrupt):
        quantize.run(load_recipe(name), source, data, out, resume=True, **given)
    assert len(done) == 4 - last
    monkeypatch.setattr(quantize, "seal", seal)
    made = quantize.run(load_recipe(name), source, data, out, resume=True, **given)

    assert len(done) == 4 - last and made.files == whole.files
    first, second = (one.provenance.recipe["outcome"] for one in (whole, made))
    assert first["check"] == second["check"] and first.get("awq") == second.get("awq")
    assert not (tmp_path / "out.training").exists()


# ----------------------------------------------------------------------------------------------------------- writing

DTYPES = {"F32": torch.float32, "BF16": torch.bfloat16, "U8": torch.uint8, "F8_E4M3": torch.float8_e4m3fn}
planned = st.lists(
    st.lists(st.tuples(st.sampled_from(sorted(DTYPES)), st.integers(1, 9)), min_size=1, max_size=4),
    min_size=1,
    max_size=6,
)


@pytest.mark.parametrize("part", [torch.zeros(3), torch.zeros(5), torch.zeros(4, dtype=torch.bfloat16)])
def test_a_tensor_that_is_not_as_planned_is_refused(part: Any, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="as planned"):
        write_weights(tmp_path, [[ShardTensor("a", "F32", (4,), lambda: [part])]])


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
