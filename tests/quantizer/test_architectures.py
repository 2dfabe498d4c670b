"""Any decoder that transformers loads, as a tiny random model through the whole quantizer; and what experts need."""

import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest

INSTALL = "needs the quantizer extra: pip install -e '.[quantizer]'"
torch = pytest.importorskip("torch", reason=INSTALL)
pytest.importorskip("transformers", reason=INSTALL)

from safetensors.torch import save_file  # noqa: E402
from torch.nn import functional as F  # noqa: E402

from quantizer.checkpoint.source import load_model, open_source  # noqa: E402
from quantizer.core.decoder import logit_scale  # noqa: E402
from quantizer.core.errors import SourceError  # noqa: E402
from quantizer.gguf.write import write_gguf  # noqa: E402
from quantizer.nano import conversations  # noqa: E402
from quantizer.plan.model import read_model  # noqa: E402
from quantizer.ptq.quantize import run  # noqa: E402
from quantizer.recipes.recipe import load_recipe  # noqa: E402
from quantizer.surgery.operation import parse_server  # noqa: E402
from quantizer.surgery.plan import make_plan as plan_surgery  # noqa: E402
from quantizer.train import run as train_run  # noqa: E402
from quantizer.train.learner import Learner, micro  # noqa: E402
from quantizer.verify.check import verify  # noqa: E402
from tests.quantizer import folders, ggufs, tiny  # noqa: E402

pytestmark = [pytest.mark.torch, pytest.mark.usefixtures("one_thread")]
DECODERS: dict[str, dict[str, Any]] = {
    "llama": {},
    "qwen2": {"tie_word_embeddings": True},  # biases in q, k and v
    "mistral": {},
    "phi": {"partial_rotary_factor": 0.5},  # biases everywhere, the head's too; norms with a mean; no gate
    "phi3": {"rope_parameters": {"rope_type": "default", "rope_theta": 1e4}},  # fused qkv_proj, gate_up_proj
    "olmo2": {},  # norms behind attention and MLP
    "granite": {"logits_scaling": 8.0, "embedding_multiplier": 12.0, "residual_multiplier": 0.22},
    "cohere": {},
    "gemma3_text": {"layer_types": ["sliding_attention", "full_attention"], "sliding_window": 8},
    "smollm3": {"no_rope_layers": [1, 0]},
    "gpt_oss": {"num_local_experts": 4, "num_experts_per_tok": 2},  # experts with biases stay in BF16
    "qwen3_moe": tiny.EXPERTS,
    "opt": {"ffn_dim": 128, "word_embed_proj_dim": 64},  # other names for layers and embedding
}
FEW = [
    *(
        f"train.{setting}"
        for setting in ("max_steps=2", "batch_tokens=512", "micro_tokens=512", "compile=false")
    ),
    "calibrate.conversations=3",
]


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return conversations.write(tmp_path_factory.mktemp("rows") / "rows.jsonl", 6)


def quantized(name: str, source: Path, rows: Path, out: Path) -> Any:
    recipe = load_recipe(name, ["calibrate.conversations=3"])
    return run(recipe, source, rows, out, now=folders.NOW, device="cpu")


@pytest.mark.parametrize("kind", DECODERS)
def test_any_decoder_is_served_as_it_was_calibrated_and_trained(
    kind: str, rows: Path, tmp_path: Path
) -> None:
    source = folders.save(partial(tiny.decoder, kind, **DECODERS[kind]), tmp_path / "source")

    ptq = quantized("awq_lite", source, rows, tmp_path / "ptq")
    qad = train_run.run(
        load_recipe("qad", FEW),
        source,
        rows,
        tmp_path / "qad",
        now=folders.NOW,
        device="cpu",
        log=lambda _: None,
    )

    for made in (ptq, qad):
        parity = made.provenance.recipe["outcome"]["check"]["parity"]
        assert parity["equal"] == parity["tokens"] > 500
    assert verify(tmp_path / "ptq", source).sound and verify(tmp_path / "qad").sound
    assert not plan_surgery(tmp_path / "ptq", parse_server("vllm-0.33")).refused


@pytest.mark.parametrize("kind, scale", [("granite", 1 / 8), ("cohere", 0.0625), ("phi", 1.0)])
def test_the_loss_is_that_of_the_models_own_logits(kind: str, scale: float, tmp_path: Path) -> None:
    source = folders.bare(partial(tiny.decoder, kind, **DECODERS[kind]), tmp_path / "source")
    model: Any = load_model(source, torch.float32)
    batch = folders.batch()
    train = load_recipe("qat").train
    assert train is not None
    one = micro(batch)

    with torch.no_grad():
        loss = Learner(model, train)(*one, len(one.targets), None).ce
        wanted = F.cross_entropy(model(batch.ids).logits.flatten(0, 1)[one.places], one.targets)

    assert logit_scale(model) == pytest.approx(scale)
    assert float(loss) == pytest.approx(float(wanted), rel=1e-4)


def test_logits_with_a_soft_cap_are_not_trained(tmp_path: Path) -> None:
    source = folders.bare(partial(tiny.decoder, "gemma2"), tmp_path / "source")

    with pytest.raises(SourceError, match="changes its logits by more than a factor"):
        logit_scale(load_model(source))


# ------------------------------------------------------------------------------------------------ experts


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


# --------------------------------------------------------------------------------------------------- GGUF


@pytest.mark.parametrize(
    "change, reason",
    [
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


@pytest.mark.parametrize("name", ["awq_lite", "gptq"])
def test_an_expert_that_no_token_chose_is_rounded_all_the_same(name: str, rows: Path, tmp_path: Path) -> None:
    source = folders.save(tiny.qwen3_moe, tmp_path / "source", num_experts=24)
    recipe = load_recipe(name, ["calibrate.conversations=1"])

    run(recipe, source, rows, tmp_path / "out", now=folders.NOW, device="cpu")

    assert verify(tmp_path / "out", source).sound
