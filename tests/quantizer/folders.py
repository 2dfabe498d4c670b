"""Folders of tiny models: what a recipe is given, complete with the nano models' tokenizer and templates."""

import json
import resource
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file

from gates.artefact.artefact import Provenance
from quantizer.checkpoint.export import seal, write_nvfp4
from quantizer.checkpoint.source import Source, load_model, open_source
from quantizer.core.atomic_output import atomic_folder
from quantizer.core.batch import Batch
from quantizer.layers.attach import attach, make_plan
from quantizer.layers.linear import nvfp4_layers
from quantizer.nano.conversations import write as write_conversations
from quantizer.recipes.recipe import Layers
from tests.quantizer import tiny

NANO = Path(__file__).parents[2] / "models" / "annie-nano-hf"
VOCABULARY = 2048  # the nano tokenizer's
NOW = datetime(2026, 11, 21, tzinfo=UTC)
BUILDS = (tiny.qwen3, tiny.qwen3_5)


def save(build: Any, folder: Path, **more: Any) -> Path:
    """A source folder of a tiny model that can be talked to."""
    model = build(**{"vocab_size": VOCABULARY, "max_position_embeddings": 2048, **more})
    model.save_pretrained(folder)
    for name in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja", "generation_config.json"):
        shutil.copy(NANO / name, folder)
    shutil.copytree(NANO / "additional_chat_templates", folder / "additional_chat_templates")
    return folder


def with_data(folder: Path, conversations: int) -> Path:
    """The sources of all BUILDS, and conversations in `data.jsonl`."""
    for build in BUILDS:
        save(build, folder / build.__name__)
    write_conversations(folder / "data.jsonl", conversations)
    return folder


def bare(build: Any, folder: Path, **more: Any) -> Source:
    """A source without a tokenizer, of the smallest vocabulary."""
    build(**more).save_pretrained(folder)
    return open_source(folder)


def wrapped(folder: Path) -> Source:
    """A tiny Qwen3.5 as the text part of a vision-language model, with a tower and an MTP layer beside it."""
    bare(tiny.qwen3_5, folder)
    text = json.loads((folder / "config.json").read_text())
    config = {
        "model_type": "qwen3_5",
        "architectures": ["Qwen3_5ForConditionalGeneration"],
        "text_config": text,
    }
    (folder / "config.json").write_text(json.dumps(config | {"dtype": "bfloat16"}))
    tensors = {k.replace("model.", "model.language_model.", 1): v for k, v in load(folder).items()}
    for name in ("model.visual.blocks.0.attn.qkv.weight", "mtp.layers.0.mlp.up_proj.weight"):
        tensors[name] = torch.randn(48, 32).bfloat16()
    exact = next(name for name in tensors if name.endswith("A_log"))
    tensors[exact] = tensors[exact].float() + 1e-4  # a number that BF16 does not have
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    return open_source(folder)


def give_mtp(folder: Path) -> dict[str, Any]:
    """Put a random MTP head of Qwen3.5's shape into a folder of a tiny Qwen3.5; the head's tensors."""
    tensors = load(folder)
    config = json.loads((folder / "config.json").read_text())
    prefix = "model.layers.3."  # the layer with attention, as the head's own is
    width = len(tensors["model.norm.weight"])
    generator = torch.Generator().manual_seed(5)
    shapes = {
        f"layers.0.{n.removeprefix(prefix)}": t.shape for n, t in tensors.items() if n.startswith(prefix)
    }
    shapes |= {f"{name}.weight": (width,) for name in ("norm", "pre_fc_norm_embedding", "pre_fc_norm_hidden")}
    shapes["fc.weight"] = (width, 2 * width)
    head = {f"mtp.{n}": (torch.randn(s, generator=generator) * 0.2).bfloat16() for n, s in shapes.items()}
    (folder / "config.json").write_text(json.dumps(config | {"mtp_num_hidden_layers": 1}))
    save_file(tensors | head, folder / "model.safetensors", metadata={"format": "pt"})
    return head


def load(folder: Path) -> dict[str, Any]:
    """All tensors of a folder, of every shard."""
    return {name: t for path in sorted(folder.glob("*.safetensors")) for name, t in load_file(path).items()}


def batch(seed: int = 0, padded: bool = False) -> Batch:
    """Tokens of the smallest vocabulary; the assistant wrote the second half. padded: the first row ends early."""
    ids = tiny.tokens(seed)
    attention = torch.ones_like(ids, dtype=torch.bool)
    if padded:
        attention[0, 12:] = False
    labels = ids.clone()
    labels[:, :8] = -100
    return Batch(ids, labels.masked_fill(~attention, -100), attention)


def attached(source: Source, amax: float = 10.0, **layers: Any) -> Any:
    """The source's model with NVFP4 layers whose inputs have an amax that nothing was measured for."""
    model = load_model(source)
    attach(model, make_plan(model, Layers(**layers)))
    for layer in nvfp4_layers(model).values():
        layer.input_amax.fill_(amax)
    return model


def export(model: Any, source: Source, out: Path, **more: Any) -> Path:
    """Written, sealed and in its place."""
    with atomic_folder(out) as work:
        write_nvfp4(model, source, work, **more)
        seal(work, name="tiny", format="hf-nvfp4", source=source, created=NOW, origin=Provenance())
    return out


@contextmanager
def nothing_left(folder: Path) -> Iterator[None]:
    """Within a `with` block nothing new comes to stay in a folder."""
    before = sorted(folder.rglob("*"))
    yield
    assert sorted(folder.rglob("*")) == before


@contextmanager
def small_files(size: int) -> Iterator[None]:
    """The kernel refuses to write more than so many bytes to a file: what a full disk does, for root too."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
