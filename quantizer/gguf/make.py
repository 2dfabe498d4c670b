"""Convert a Hugging Face folder to a sealed folder with one GGUF file, as our writer makes it."""

from collections import Counter
from collections.abc import Iterable, Mapping
from datetime import datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

from gguf import GGMLQuantizationType

from gates.artefact import artefact
from gates.artefact.artefact import Artefact, Provenance
from quantizer.checkpoint.mtp import mtp_facts
from quantizer.checkpoint.source import Source, read_manifest, refuse_code, require_config
from quantizer.core.atomic_output import atomic_folder
from quantizer.core.errors import SourceError, UnavailableError
from quantizer.gguf.ggml import GgmlError
from quantizer.gguf.write import write_gguf
from quantizer.verify.check import verify
from quantizer.verify.folder import open_intact_folder
from quantizer.verify.layout import is_quantized, refuse_fp8, tensors_by_module

TOOLS: Final = ("gguf", "xllamacpp", "torch", "safetensors")


def make_gguf(path: Path, out: Path, kind: str, created: datetime) -> Artefact:
    """Write and seal `out`. path: the folder, in BF16, or in NVFP4 for the kinds nvfp4 and f16. Raises SourceError,
    UnavailableError (no ggml), ExportError; then nothing is left there."""
    source = open_model(path)
    name = source.manifest.name if source.manifest else path.resolve().name
    with atomic_folder(out) as work:
        try:
            types = write_gguf(path, work / f"{name}-{kind}.gguf", kind, name)
        except GgmlError as error:
            raise UnavailableError(str(error)) from None
        return artefact.seal(
            work,
            name=name,
            format=f"gguf-{kind}",
            created=created,
            provenance=_origin(kind, source, types),
        )


def open_model(path: Path) -> Source:
    """Open a folder in BF16 or NVFP4. Raises SourceError if it is damaged, contains code, or its NVFP4 is not
    sound."""
    folder = open_intact_folder(path)
    require_config(path, folder.config)
    refuse_code(path, "config.json", folder.config)
    held = tensors_by_module(folder)
    refuse_fp8(folder)
    if any(is_quantized(parts) for parts in held.values()):
        found = [finding for finding in verify(path).findings if finding.severity == "error"]
        if found:
            raise SourceError(f"{path}: {found[0]}")
    elif "quantization_config" in folder.config:
        raise SourceError(
            f"{path}: is quantized, and not as NVFP4; give the BF16 model that it was made from"
        )
    return Source(folder, read_manifest(path))


def _origin(kind: str, source: Source, types: Mapping[str, GGMLQuantizationType]) -> Provenance:
    held = source.manifest.provenance if source.manifest else Provenance()
    recipe: dict[str, Any] = {
        "from": "safetensors",
        "mix": kind,
        "by": "manners",
        "tensors": dict(sorted(Counter(one.name for one in types.values()).items())),
    }
    if mtp := _head_facts(source, types):
        recipe["mtp"] = mtp
    tools = {name: version(name) for name in TOOLS}
    return Provenance(held.base_model, {"source": source.root}, recipe, held.data_digest, tools)


def _head_facts(source: Source, types: Iterable[str]) -> dict[str, Any] | None:
    """What the artefact says of an MTP head: what the folder's own said, if the file has it."""
    facts = mtp_facts(source, trained=False)
    if not facts or not facts["tensors"]:
        return facts
    if not any(".nextn." in name for name in types):
        return {"tensors": 0, "state": "left out of this file"}
    made = source.manifest.provenance.recipe if source.manifest else {}
    before = made.get("outcome", {}).get("mtp", {})
    return facts | {"state": before.get("state", facts["state"])}
