"""The MTP head of a Qwen3.5: carried through quantization, training, unpacking and GGUF, and told of in the artefact."""

import json
from pathlib import Path
from typing import Any

import pytest

INSTALL = "needs the quantizer extra: pip install -e '.[quantizer]'"
torch = pytest.importorskip("torch", reason=INSTALL)
pytest.importorskip("transformers", reason=INSTALL)

from gates.artefact import artefact  # noqa: E402
from quantizer.checkpoint.mtp import inside  # noqa: E402
from quantizer.checkpoint.source import open_source  # noqa: E402
from quantizer.nano import conversations  # noqa: E402
from quantizer.ptq import quantize  # noqa: E402
from quantizer.recipes.recipe import load_recipe  # noqa: E402
from quantizer.verify.check import verify  # noqa: E402
from tests.quantizer import folders, ggufs, tiny  # noqa: E402

pytestmark = [pytest.mark.torch, pytest.mark.usefixtures("one_thread")]
UNTRAINED = "not trained with the body"


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A source with a head, and data."""
    made = tmp_path_factory.mktemp("mtp")
    folders.save(tiny.qwen3_5, made / "source")
    folders.give_mtp(made / "source")
    conversations.write(made / "data.jsonl", 6)
    return made


@pytest.fixture(scope="module")
def quantized(place: Path) -> Path:
    """The source in NVFP4."""
    recipe = load_recipe("default", ["calibrate.conversations=4"])
    quantize.run(
        recipe, place / "source", place / "data.jsonl", place / "nvfp4", now=folders.NOW, device="cpu"
    )
    return place / "nvfp4"


def head(folder: Path) -> dict[str, Any]:
    return {name: tensor for name, tensor in folders.load(folder).items() if inside(name)}


def same(one: dict[str, Any], other: dict[str, Any]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


def told(folder: Path) -> dict[str, Any]:
    """What the artefact says of the head."""
    facts: dict[str, Any] = artefact.load(folder).provenance.recipe["outcome"]["mtp"]
    return facts


def test_quantization_carries_the_head_in_bf16(place: Path, quantized: Path) -> None:
    ignored = json.loads((quantized / "config.json").read_text())["quantization_config"]["ignore"]

    assert len(head(quantized)) == 15 and same(head(quantized), head(place / "source"))
    assert "mtp*" in ignored and not [name for name in ignored if name.startswith("mtp.")]
    assert not [found for found in verify(quantized, place / "source").findings if found.severity == "error"]
    assert told(quantized)["tensors"] == 15 and UNTRAINED not in told(quantized)["state"]


# ----------------------------------------------------------------------------------------------------- GGUF


@pytest.fixture(scope="module")
def hybrid(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a head that can become a GGUF file."""
    folder = ggufs.save(ggufs.qwen3_5(), tmp_path_factory.mktemp("hybrid") / "bf16")
    folders.give_mtp(folder)
    return folder


NEXTN = {
    "nextn.eh_proj.weight": "mtp.fc.weight",
    "nextn.enorm.weight": "mtp.pre_fc_norm_embedding.weight",
    "nextn.hnorm.weight": "mtp.pre_fc_norm_hidden.weight",
    "nextn.shared_head_norm.weight": "mtp.norm.weight",
    "attn_q.weight": "mtp.layers.0.self_attn.q_proj.weight",
    "attn_k_norm.weight": "mtp.layers.0.self_attn.k_norm.weight",
    "post_attention_norm.weight": "mtp.layers.0.post_attention_layernorm.weight",
    "ffn_down.weight": "mtp.layers.0.mlp.down_proj.weight",
}


@pytest.mark.parametrize("kind", ["f16", "q4_k_m", "nvfp4"])
def test_a_gguf_file_has_the_head_behind_the_last_block(hybrid: Path, tmp_path: Path, kind: str) -> None:
    gguf = pytest.importorskip("gguf", reason=INSTALL)
    pytest.importorskip("xllamacpp", reason="needs the engine's wheel: pip install -e '.[embedded]'")
    from quantizer.gguf.write import write_gguf

    source = hybrid
    if kind == "nvfp4":
        source = tmp_path / "nvfp4"
        make_nvfp4(hybrid, source)
    write_gguf(source, tmp_path / "x.gguf", kind, "x")
    reader = gguf.GGUFReader(tmp_path / "x.gguf")
    found = {t.name.removeprefix("blk.4."): t for t in reader.tensors if t.name.startswith("blk.4.")}

    assert len(found) == 15
    assert reader.fields["qwen35.block_count"].contents() == 5
    assert reader.fields["qwen35.nextn_predict_layers"].contents() == 1
    for name, origin in NEXTN.items():
        wanted = head(hybrid)[origin]
        got = torch.from_numpy(gguf.dequantize(found[name].data, found[name].tensor_type).copy())
        assert found[name].tensor_type.name == ("BF16" if wanted.ndim > 1 else "F32")
        assert torch.equal(got, wanted.float() + (1 if wanted.ndim == 1 else 0)), name


def make_nvfp4(source: Path, out: Path) -> None:
    """An NVFP4 folder as the quantizer's export makes it."""
    opened = open_source(source)
    folders.export(folders.attached(opened), opened, out)


@pytest.mark.engine
def test_llama_cpp_drafts_with_the_head(hybrid: Path, tmp_path: Path) -> None:
    pytest.importorskip("xllamacpp", reason="needs the engine's wheel: pip install -e '.[embedded]'")
    from quantizer.gguf.write import write_gguf
    from tests.llama_server import post, serving

    plain = ggufs.save(ggufs.qwen3_5(), tmp_path / "plain")
    prompt = torch.randint(1, 600, (24,), generator=torch.Generator().manual_seed(3)).tolist()
    body = {"prompt": prompt, "n_predict": 8, "n_probs": 5, "temperature": 0, "return_tokens": True}
    replies = []
    for folder, drafts in ((hybrid, False), (plain, False), (hybrid, True)):
        write_gguf(folder, tmp_path / "x.gguf", "f16", "x")
        with serving(tmp_path / "x.gguf", 1, 512, 1, drafts) as base:
            replies.append(post(base, "/completion", body))

    assert replies[0]["tokens"] == replies[1]["tokens"] == replies[2]["tokens"]
    assert [reply["timings"].get("draft_n", 0) > 0 for reply in replies] == [False, False, True]
    for one, other in zip(*(reply["completion_probabilities"] for reply in replies[:2]), strict=True):
        assert one["logprob"] == pytest.approx(other["logprob"], abs=1e-3)
