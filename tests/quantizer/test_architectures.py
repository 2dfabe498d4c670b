"""Other architectures than Qwen's dense ones: Llama, Gemma 3 and Qwen3-MoE, as tiny random models through the whole quantizer."""

import json
from pathlib import Path
from typing import Any

import pytest

INSTALL = "needs the quantizer extra: pip install -e '.[quantizer]'"
torch = pytest.importorskip("torch", reason=INSTALL)
pytest.importorskip("transformers", reason=INSTALL)

from safetensors.torch import save_file  # noqa: E402
from transformers import Qwen3MoeForCausalLM  # noqa: E402

from quantizer.checkpoint.source import load_model, open_source  # noqa: E402
from quantizer.core.errors import SourceError  # noqa: E402
from quantizer.gguf.write import write_gguf  # noqa: E402
from quantizer.layers.attach import attach, make_plan, share_scales  # noqa: E402
from quantizer.layers.experts import SeparateExperts  # noqa: E402
from quantizer.nano import conversations  # noqa: E402
from quantizer.plan.model import read_model  # noqa: E402
from quantizer.ptq.calibrate import observe  # noqa: E402
from quantizer.ptq.quantize import run  # noqa: E402
from quantizer.recipes.recipe import Layers, load_recipe  # noqa: E402
from quantizer.train import run as train_run  # noqa: E402
from quantizer.verify.check import verify  # noqa: E402
from tests.quantizer import folders, ggufs, tiny  # noqa: E402

pytestmark = [pytest.mark.torch, pytest.mark.usefixtures("one_thread")]
NAMES = [build.__name__ for build in folders.OTHERS]


def pairs(recipes: list[str]) -> list[Any]:
    """Every recipe with every architecture. At night only: a later recipe with what has no experts; it goes the same
    way there as with Qwen's dense models, whose tests run always."""
    return [
        pytest.param(
            name,
            shape,
            id=f"{name}-{shape}",
            marks=[pytest.mark.nightly] if name != recipes[0] and shape != "qwen3_moe" else [],
        )
        for name in recipes
        for shape in NAMES
    ]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sources")
    for build in folders.OTHERS:
        folders.save(build, folder / build.__name__)
    conversations.write(folder / "rows.jsonl", 6)
    return folder


def quantized(name: str, source: Path, place: Path, out: Path) -> Any:
    recipe = load_recipe(name, ["calibrate.conversations=3"])
    return run(recipe, source, place / "rows.jsonl", out, now=folders.NOW, device="cpu")


@pytest.mark.parametrize("name, shape", pairs(["default", "awq_lite", "gptq"]))
def test_what_is_calibrated_is_what_is_served(name: str, shape: str, place: Path, tmp_path: Path) -> None:
    made = quantized(name, place / shape, place, tmp_path / "out")
    check = made.provenance.recipe["outcome"]["check"]

    assert check["parity"]["equal"] == check["parity"]["tokens"] > 500
    assert verify(tmp_path / "out", place / shape).sound


@pytest.mark.parametrize("name, shape", pairs(["qad", "qat"]))
def test_training_writes_what_it_trained(name: str, shape: str, place: Path, tmp_path: Path) -> None:
    few = [
        "train.max_steps=2",
        "train.batch_tokens=512",
        "train.micro_tokens=512",
        "calibrate.conversations=3",
        "train.compile=false",
    ]
    recipe = load_recipe(name, few)
    made = train_run.run(
        recipe, place / shape, place / "rows.jsonl", tmp_path / "out", now=folders.NOW, device="cpu"
    )
    outcome = made.provenance.recipe["outcome"]

    assert outcome["train"]["steps"] == 2
    assert outcome["check"]["parity"]["equal"] == outcome["check"]["parity"]["tokens"]
    assert verify(tmp_path / "out").sound


# ------------------------------------------------------------------------------------------------ experts


def test_separate_experts_compute_what_stacked_ones_do(tmp_path: Path) -> None:
    source = folders.bare(tiny.qwen3_moe, tmp_path / "source")
    own, ids = Qwen3MoeForCausalLM.from_pretrained(source.path, dtype=torch.float32), tiny.tokens()

    model = load_model(source, torch.float32)

    assert any(isinstance(module, SeparateExperts) for module in model.modules())
    assert torch.allclose(model(ids).logits, own(ids).logits, atol=1e-5)


def test_a_folder_may_stack_its_experts(tmp_path: Path) -> None:
    apart = folders.bare(tiny.qwen3_moe, tmp_path / "apart")
    own = tiny.qwen3_moe()
    (tmp_path / "stacked").mkdir()
    held = {name: tensor.contiguous() for name, tensor in own.state_dict().items()}
    save_file(held, tmp_path / "stacked" / "model.safetensors", metadata={"format": "pt"})
    config = json.loads((apart.path / "config.json").read_text())
    (tmp_path / "stacked" / "config.json").write_text(json.dumps(config))
    assert any(name.endswith("experts.gate_up_proj") for name in held)

    one, other = load_model(apart), load_model(open_source(tmp_path / "stacked"))

    assert all(torch.equal(a, b) for a, b in zip(one.parameters(), other.parameters(), strict=True))
    assert read_model(tmp_path / "stacked").tensors == read_model(apart.path).tensors


def test_all_experts_of_a_layer_round_their_inputs_by_one_scale(tmp_path: Path) -> None:
    model = load_model(folders.bare(tiny.qwen3_moe, tmp_path / "source"))
    layers = attach(model, make_plan(model, Layers()))
    first = "model.layers.0.mlp.experts"
    layers[f"{first}.2.gate_proj"].input_amax.fill_(3.0)
    layers[f"{first}.1.down_proj"].input_amax.fill_(5.0)

    share_scales(model)

    assert {
        float(layers[f"{first}.{i}.{part}"].input_amax) for i in range(4) for part in ("gate_proj", "up_proj")
    } == {3.0}
    assert {float(layers[f"{first}.{i}.down_proj"].input_amax) for i in range(4)} == {5.0}
    assert torch.equal(layers[f"{first}.0.gate_proj"].weight_amax, layers[f"{first}.0.up_proj"].weight_amax)
    assert not torch.equal(
        layers[f"{first}.0.gate_proj"].weight_amax, layers[f"{first}.1.gate_proj"].weight_amax
    )


def test_padding_goes_through_no_expert(tmp_path: Path) -> None:
    model = folders.attached(folders.bare(tiny.qwen3_moe, tmp_path / "source"))
    batch = folders.batch(padded=True)
    other = batch._replace(ids=torch.where(batch.attention, batch.ids, batch.ids.flip(1)))

    one, two = (observe(model, [each]) for each in (batch, other))

    assert not torch.equal(batch.ids, other.ids)
    assert {name: seen.tokens for name, seen in one.items()} == {
        name: seen.tokens for name, seen in two.items()
    }
    assert all(torch.equal(one[name].amax, two[name].amax) for name in one)
    assert (
        sum(one[f"model.layers.0.mlp.experts.{i}.up_proj"].tokens for i in range(4))
        == 2 * batch.attention.sum()
    )


@pytest.mark.parametrize("name", ["default", "awq_lite", "gptq"])
def test_an_expert_that_no_token_chose_is_rounded_all_the_same(
    name: str, place: Path, tmp_path: Path
) -> None:
    source = folders.save(tiny.qwen3_moe, tmp_path / "source", num_experts=24)
    recipe = load_recipe(name, ["calibrate.conversations=1"])

    run(recipe, source, place / "rows.jsonl", tmp_path / "out", now=folders.NOW, device="cpu")

    assert verify(tmp_path / "out", source).sound


# --------------------------------------------------------------------------------------------------- GGUF


@pytest.mark.parametrize(
    "change, reason",
    [
        (
            {"model_type": "gemma3_text"},
            "models of type 'gemma3_text' are not written here; use llama.cpp's",
        ),
        ({"norm_topk_prob": False}, "norm_topk_prob is not true here"),
        ({"mlp_only_layers": [0]}, "this model has an MLP in some"),
        ({"num_local_experts": 8}, "otherwise for eight experts"),
        ({"num_local_experts": 5}, "4 experts, and config.json says 5"),
    ],
)
def test_what_llama_cpp_would_read_wrongly_is_refused(
    change: dict[str, Any], reason: str, tmp_path: Path
) -> None:
    folder = ggufs.save(ggufs.qwen3_moe(), tmp_path / "source")
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | change))

    with pytest.raises(SourceError, match=reason):
        write_gguf(folder, tmp_path / "x.gguf", "f16", "x")


@pytest.mark.parametrize(
    "kind, down", [("f16", ["F16", "F16"]), ("q8_0", ["Q8_0", "Q8_0"]), ("q4_k_m", ["Q5_0", "Q8_0"])]
)
def test_experts_are_one_tensor_and_routers_stay_as_they_are(
    kind: str, down: list[str], tmp_path: Path
) -> None:
    folder = ggufs.save(ggufs.qwen3_moe(), tmp_path / "source")

    types = write_gguf(folder, tmp_path / "x.gguf", kind, "x")

    assert {types[f"blk.{block}.ffn_gate_inp.weight"].name for block in (0, 1)} == {"F32"}
    assert [types[f"blk.{block}.ffn_down_exps.weight"].name for block in (0, 1)] == down
    assert not any(".experts." in name for name in types)
