"""Convert a Hugging Face folder to a sealed folder with one GGUF file, with our writer or llama.cpp's programs."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from datetime import datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any, Final

from gguf import GGUFReader

from gates.artefact import artefact
from gates.artefact.manifest import Artefact, Provenance
from quantizer.checkpoint.mtp import mtp_facts
from quantizer.checkpoint.source import Source, read_manifest, refuse_code, require_config
from quantizer.core.atomic_output import atomic_folder
from quantizer.core.errors import ExportError, SourceError, UnavailableError
from quantizer.gguf import llama_cpp
from quantizer.gguf.ggml import GgmlError
from quantizer.gguf.llama_cpp import LlamaCppPrograms
from quantizer.gguf.write import NVFP4, write_gguf
from quantizer.verify.check import verify
from quantizer.verify.folder import open_intact_folder
from quantizer.verify.layout import is_fp8, is_quantized, tensors_by_module

TOOLS: Final = ("gguf", "xllamacpp", "torch", "safetensors")


@dataclass(frozen=True, slots=True)
class GgufJob:
    """source: the folder, in BF16, or in NVFP4 for "nvfp4" and "f16". kind: one of quantizer.gguf.write.KINDS."""

    source: Path
    out: Path
    kind: str
    programs: LlamaCppPrograms = LlamaCppPrograms()


def make_gguf(job: GgufJob, created: datetime) -> Artefact:
    """Write and seal `job.out`.

    Raises SourceError if the folder cannot be converted as requested, UnavailableError if a program is missing,
    ExportError if the result cannot be written. In each case nothing is left at `job.out`.
    """
    job.programs.check()
    source = open_model(job.source)
    name = source.manifest.name if source.manifest else job.source.resolve().name
    with atomic_folder(job.out) as work:
        target = work / f"{name}-{job.kind}.gguf"
        try:
            tool, types = _write(job, work, target, name)
        except GgmlError as error:
            raise UnavailableError(str(error)) from None
        if not llama_cpp.is_gguf(target):
            raise ExportError(f"{target.name}: was not written")
        return artefact.seal(
            work,
            name=name,
            format=f"gguf-{job.kind}",
            created=created,
            provenance=_origin(job, source, target, tool, types),
        )


def open_model(path: Path) -> Source:
    """Open a folder in BF16 or NVFP4. Raises SourceError if it is damaged, contains code, or its NVFP4 is not
    sound."""
    folder = open_intact_folder(path)
    require_config(path, folder.config)
    refuse_code(path, "config.json", folder.config)
    held = tensors_by_module(folder)
    if eight := next((name for name, parts in held.items() if is_fp8(parts)), None):
        raise SourceError(f"{path}: {eight} is in FP8, which GGUF has not; give the BF16 model")
    if any(is_quantized(parts) for parts in held.values()):
        found = [finding for finding in verify(path).findings if finding.severity == "error"]
        if found:
            raise SourceError(f"{path}: {found[0]}")
    elif "quantization_config" in folder.config:
        raise SourceError(
            f"{path}: is quantized, and not as NVFP4; give the BF16 model that it was made from"
        )
    return Source(folder, read_manifest(path))


def _write(job: GgufJob, work: Path, target: Path, name: str) -> tuple[str, dict[str, int]]:
    """Write the file. Returns the name of the program that wrote it, and the number of tensors of each type."""
    converter, quantize = job.programs.converter, job.programs.quantize
    if job.kind in (NVFP4, "f16") or (converter is None and quantize is None):
        if converter is None:
            types = write_gguf(job.source, target, job.kind, name)
            return "manners", dict(sorted(Counter(one.name for one in types.values()).items()))
        llama_cpp.run(llama_cpp.converter_argv(converter, job.source, target, job.kind), target)
        return converter.name, type_counts(target)
    if quantize is None:
        raise UnavailableError(f"{job.kind} needs llama-quantize after the converter: name it by --quantize")
    plain = work.with_name(f"{work.name}.f16")  # beside the folder, so that it is never part of the artefact
    try:
        before, _ = _write(
            GgufJob(job.source, job.out, "f16", LlamaCppPrograms(converter)), work, plain, name
        )
        llama_cpp.run(llama_cpp.quantize_argv(quantize, plain, target, job.kind), target)
    finally:
        plain.unlink(missing_ok=True)
    return f"{before}, {quantize.name}", type_counts(target)


def _origin(job: GgufJob, source: Source, target: Path, tool: str, types: dict[str, int]) -> Provenance:
    held = source.manifest.provenance if source.manifest else Provenance()
    recipe: dict[str, Any] = {
        "from": "safetensors",
        "mix": job.kind,
        "by": tool,
        "tensors": types,
    }
    if mtp := _head_facts(source, target):
        recipe["mtp"] = mtp
    tools = {name: version(name) for name in TOOLS}
    return Provenance(held.base_model, {"source": source.root}, recipe, held.data_digest, tools)


def _head_facts(source: Source, target: Path) -> dict[str, Any] | None:
    """What the artefact says of an MTP head: what the folder's own said, if the file has it."""
    facts = mtp_facts(source, trained=False)
    if not facts or not facts["tensors"]:
        return facts
    if not any(".nextn." in tensor.name for tensor in GGUFReader(target).tensors):
        return {"tensors": 0, "state": "left out of this file"}
    made = source.manifest.provenance.recipe if source.manifest else {}
    before = made.get("outcome", {}).get("mtp", {})
    return facts | {"state": before.get("state", facts["state"])}


def type_counts(path: Path) -> dict[str, int]:
    """The number of tensors of each type in a file. Raises ExportError if it cannot be read back."""
    try:
        found = Counter(tensor.tensor_type.name for tensor in GGUFReader(path).tensors)
    except (ValueError, IndexError, KeyError, OSError) as error:
        raise ExportError(f"{path.name}: cannot be read back ({error})") from None
    return dict(sorted(found.items()))
