"""Write the files of a Hugging Face folder: weights in shards, settings as JSON, everything else copied."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Final

from safetensors.torch import save_file
from torch import Tensor

from gates.artefact.manifest import MANIFEST
from quantizer.verify.folder import INDEX

SHARD_BYTES: Final = 4 * 2**30
COPIED: Final = ("*.json", "*.jinja", "*.txt", "*.model", "*.tiktoken", "LICENSE*", "NOTICE*")
WRITTEN: Final = ("config.json", "hf_quant_config.json", INDEX, MANIFEST)


def write_weights(folder: Path, tensors: Iterable[dict[str, Tensor]], shard_bytes: int = SHARD_BYTES) -> None:
    """Write tensors in shards of at most this many bytes, with an index if there is more than one shard.

    tensors: groups of tensors on the CPU; each group stays in one shard. At most one shard is in memory at a time.
    """
    held: dict[str, Tensor] = {}
    drafts: list[tuple[Path, list[str]]] = []
    size = total = 0
    for group in tensors:
        more = sum(tensor.nbytes for tensor in group.values())
        if held and size + more > shard_bytes:
            drafts.append(_draft(folder, len(drafts), held))
            held, size = {}, 0
        held |= group
        size, total = size + more, total + more
    drafts.append(_draft(folder, len(drafts), held))
    _name(folder, drafts, total)


def copy_others(source: Path, folder: Path) -> None:
    """Copy tokenizer, templates and settings, including subfolders. Links become files. Code, pickles and hidden
    files are not copied."""
    for path in sorted(source.rglob("*")):
        place = path.relative_to(source)
        hidden = any(part.startswith(".") for part in place.parts)
        if hidden or not path.is_file() or (folder / place).exists() or place.name in WRITTEN:
            continue
        if any(fnmatchcase(place.name, pattern) for pattern in COPIED):
            (folder / place).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, folder / place)


def write_json(path: Path, value: Mapping[str, Any]) -> None:
    path.write_text(json.dumps(value, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def _draft(folder: Path, number: int, tensors: dict[str, Tensor]) -> tuple[Path, list[str]]:
    path = folder / f"draft-{number}.safetensors"
    save_file(tensors, path, metadata={"format": "pt"})
    path.chmod(
        0o644
    )  # safetensors writes files readable only by their owner, but a server may run as another user
    return path, list(tensors)


def _name(folder: Path, drafts: list[tuple[Path, list[str]]], total: int) -> None:
    """Rename the drafts to their final names. They contain the number of shards, which is known only at the end."""
    if len(drafts) == 1:
        drafts[0][0].rename(folder / "model.safetensors")
        return
    index: dict[str, str] = {}
    for number, (path, names) in enumerate(drafts, 1):
        shard = f"model-{number:05}-of-{len(drafts):05}.safetensors"
        path.rename(folder / shard)
        index |= dict.fromkeys(names, shard)
    write_json(folder / INDEX, {"metadata": {"total_size": total}, "weight_map": dict(sorted(index.items()))})
