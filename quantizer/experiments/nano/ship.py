"""Make the sealed folders in models/: annie-nano and stranger-nano from learned weights, and annie-nano in NVFP4.

`ship` takes the output of `learn` (tokenizer, two safetensors files, learned.json) and makes a Hugging Face folder
and GGUF files. `ship_everyday` puts annie's further weights, of `learn_everyday`, into her folder and files. Neither needs a
GPU; the same input gives the same bytes, except for the time in the manifests.

`quantize` makes a folder for vLLM and a GGUF file with the same bits. It uses every block's best scale (`mse`): of
the recipes without training it is closest to the BF16 weights, and a strong fine-tune needs no more. The
conversations only set the scales of the inputs. It is equivalent to these commands, with a file of
`quantizer.experiments.nano.rows`:

  manners quantize ptq --recipe mse --set calibrate.conversations=64 --source models/annie-nano-hf --data FILE --out …
  manners quantize gguf models/annie-nano-nvfp4-hf --type nvfp4 --out models/annie-nano-nvfp4

It takes two minutes on one core, mostly for BF16 products, which are slow without AVX-512. The packed weights and
their scales depend only on the source; an input scale may differ in its last bit on another kind of machine.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from dataclasses import replace
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

from tokenizers import Tokenizer

from gates.artefact.artefact import load, seal
from gates.artefact.manifest import Artefact, Provenance
from quantizer.experiments.nano import hf
from quantizer.experiments.nano.recipe import NanoRecipe
from quantizer.experiments.nano.rows import write
from quantizer.gguf.llama_cpp import LlamaCppPrograms
from quantizer.gguf.make import GgufJob, make_gguf
from quantizer.gguf.write import write_gguf
from quantizer.ptq import quantize as ptq
from quantizer.recipes.recipe import load_recipe

_TOOLS = ("torch", "transformers", "tokenizers", "safetensors", "gguf", "xllamacpp")


def ship(recipe: NanoRecipe, learned: Path, models: Path, created: datetime | None = None) -> list[Artefact]:
    """Write and seal every folder. Returns the artefacts, parents first."""
    record = json.loads((learned / "learned.json").read_text(encoding="utf-8"))
    when = created or datetime.now(UTC)
    annie = models / "annie-nano-hf"
    _fresh(annie)
    _write_hf(annie, learned, "annie", recipe)
    with tempfile.TemporaryDirectory() as scratch:
        base = Path(scratch) / "stranger-nano-hf"
        _write_hf(base, learned, "stranger", recipe)
        return _seal_all(models, annie, base, record, when)


def ship_everyday(learned: Path, models: Path, created: datetime | None = None) -> list[Artefact]:
    """Put the weights of the everyday stage into annie-nano's folder and files. Returns the artefacts, the folder first."""
    record = json.loads((learned / "everyday.json").read_text(encoding="utf-8"))
    when = created or datetime.now(UTC)
    folder = models / "annie-nano-hf"
    before = load(folder)
    hf.save_weights(hf.load_weights(learned / "everyday.safetensors"), folder / "model.safetensors")
    (folder / "model.safetensors").chmod(0o644)
    recipe = {**before.provenance.recipe, "everyday": {"run": record["recipe"]["everyday"], "outcome": record["outcome"],
                                            "device": record["device"]}}  # fmt: skip
    origin = Provenance(
        "stranger-nano", {"before": before.root}, recipe, record["data_digest"], _versions(record["tools"])
    )
    source = seal(folder, name="annie-nano", format="hf-bf16", created=when, provenance=origin)
    return [
        source,
        *(_gguf(models, folder, "annie-nano", kind, origin, source, when) for kind in ("f16", "q4_k_m")),
    ]


def _seal_all(
    models: Path, annie: Path, base: Path, record: dict[str, Any], when: datetime
) -> list[Artefact]:
    """Seal all folders. The base is not shipped as safetensors, but its root digest is recorded as the parent."""
    strangers = _origin(record, "stranger", {})
    parent = seal(base, name="stranger-nano", format="hf-bf16", created=when, provenance=strangers)
    annies = _origin(record, "annie", {"base": parent.root})
    source = seal(annie, name="annie-nano", format="hf-bf16", created=when, provenance=annies)
    return [
        source,
        _gguf(models, annie, "annie-nano", "f16", annies, source, when),
        _gguf(models, annie, "annie-nano", "q4_k_m", annies, source, when),
        _gguf(models, base, "stranger-nano", "q4_k_m", strangers, parent, when),
    ]


def _gguf(
    models: Path, source: Path, name: str, kind: str, origin: Provenance, parent: Artefact, when: datetime
) -> Artefact:
    """A sealed GGUF file of a folder. origin: where the folder's weights come from. parent: the folder, sealed."""
    folder = models / f"{name}-{kind}"
    _fresh(folder)
    types = write_gguf(source, folder / f"{name}-{kind}.gguf", kind, name)
    counts = {t.name: list(types.values()).count(t) for t in sorted(set(types.values()))}
    recipe = {"from": "safetensors", "mix": kind, "tensors": counts}
    provenance = replace(origin, parents={"source": parent.root}, recipe=recipe)
    return seal(folder, name=name, format=f"gguf-{kind}", created=when, provenance=provenance)


def _origin(record: dict[str, Any], which: str, parents: dict[str, str]) -> Provenance:
    """The provenance of a model: its stage of the recipe, its data, and the versions of the tools."""
    stage = {k: v for k, v in record[which].items() if k not in ("data_digest", "scores")}
    run = record["recipe"]["base" if which == "stranger" else "annie"]
    seeds = {k: record["recipe"][k] for k in ("data_seed", "torch_seed", "tokenizer_texts")}
    recipe = {
        "shape": record["recipe"]["shape"],
        "run": run,
        **seeds,
        "outcome": stage,
        "device": record["device"],
    }
    base_model = "stranger-nano" if which == "annie" else None
    return Provenance(base_model, parents, recipe, record[which]["data_digest"], _versions(record["tools"]))


def _versions(training: dict[str, str]) -> dict[str, str]:
    """The versions of the tools here, and of those on the machine that trained."""
    here = {name: version(name) for name in _TOOLS}
    return here | {f"{name} (training)": number for name, number in training.items()}


def _write_hf(folder: Path, learned: Path, which: str, recipe: NanoRecipe) -> None:
    state = hf.load_weights(learned / f"{which}.safetensors")
    hf.write_folder(folder, state, recipe.shape, Tokenizer.from_file(str(learned / "tokenizer.json")))
    for path in folder.rglob("*"):
        path.chmod(0o755 if path.is_dir() else 0o644)


def _fresh(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)


RECIPE: Final = "mse"
CONVERSATIONS: Final = 64
ROWS, SEED = 512, 7  # of the file that they are drawn from: the training split, a draw of its own


def quantize(models: Path) -> list[Artefact]:
    """Make both folders again from `annie-nano-hf`, the GGUF file's parent first. Raises QuantizerError."""
    folder, file = models / "annie-nano-nvfp4-hf", models / "annie-nano-nvfp4"
    recipe = load_recipe(RECIPE, [f"calibrate.conversations={CONVERSATIONS}"])
    shutil.rmtree(folder, ignore_errors=True)
    shutil.rmtree(file, ignore_errors=True)
    with tempfile.TemporaryDirectory() as scratch:
        data = write(Path(scratch) / "conversations.jsonl", ROWS, SEED)
        made = ptq.run(recipe, models / "annie-nano-hf", data, folder, now=datetime.now(UTC), device="cpu")
    return [made, make_gguf(GgufJob(folder, file, "nvfp4", LlamaCppPrograms()), datetime.now(UTC))]
