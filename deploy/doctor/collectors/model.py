"""Facts about a model folder, from its small files; the checks judge them."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from deploy.core.errors import WeightsError
from deploy.core.gguf import Value, read_metadata
from deploy.doctor.collectors.host import text_of
from deploy.doctor.evidence import FileFacts, GgufFacts, ModelFacts
from deploy.engine.formats import template_of
from deploy.engine.questions import read_template
from deploy.engine.weights import is_projector
from deploy.memory.sizing import kv_values
from gates.artefact import artefact
from gates.artefact.artefact import MANIFEST
from gates.contracts import strict_json
from gates.contracts.errors import ManifestError

_JSON: Final = ("config.json", "hf_quant_config.json", "tokenizer_config.json")
_MOST: Final = 4 * 2**20  # bytes of a JSON that is read


def model(path: Path) -> ModelFacts:
    """Facts about a model folder or a GGUF file."""
    folder = artefact.folder_of(path)
    files = _files(folder, path)
    if not files:
        return ModelFacts(path=str(path), files=files)
    documents, torn = _documents(folder, files)
    config, quant = documents.get("config.json", {}), documents.get("hf_quant_config.json", {})
    named, here = _table(config.get("quantization_config")), "config.json" in files
    sealed, broken = _sealed(folder, files)
    return ModelFacts(
        path=str(path),
        files=files,
        sealed=sealed,
        broken=broken,
        model_type=_text(config.get("model_type")),
        architectures=tuple(map(str, config.get("architectures") or ())),
        auto_map=any("auto_map" in document for document in documents.values()),
        quant_algo=_text(_table(quant.get("quantization")).get("quant_algo")),
        config_quant_algo=_text(named.get("quant_algo")),
        quant_format=_text(named.get("format") or named.get("packing_format")),
        kv_cache_quant_algo=_text(_table(quant.get("quantization")).get("kv_cache_quant_algo")),
        tokenizer_class=_text(documents.get("tokenizer_config.json", {}).get("tokenizer_class")),
        gguf=_gguf(folder, files),
        unreadable=torn,
        **(_template(folder) if here else {}),
    )


def _files(folder: Path, artefact: Path) -> Mapping[str, FileFacts] | None:
    """Every file below a folder, but GGUF files beside `artefact`; {} if it does not exist, None if it is not readable."""
    beside = set(folder.glob("*.gguf")) - {artefact} if artefact != folder else ()
    try:
        return {
            str(path.relative_to(folder)): FileFacts(
                size=stat.st_size, uid=stat.st_uid, mode=stat.st_mode & 0o777
            )
            for path in sorted(folder.rglob("*"))
            if path not in beside and path.is_file() and (stat := path.stat())
        }
    except FileNotFoundError:
        return {}
    except OSError:
        return None


def _documents(
    folder: Path, files: Mapping[str, FileFacts]
) -> tuple[dict[str, dict[str, Any]], tuple[str, ...]]:
    found, torn = {}, []
    for name in _JSON:
        if name not in files:
            continue
        try:
            document = strict_json.loads((text_of(folder / name) or "") if files[name].size <= _MOST else "")
        except ValueError:
            document = None
        if isinstance(document, dict):
            found[name] = document
        else:
            torn.append(name)
    return found, tuple(torn)


def _sealed(folder: Path, files: Mapping[str, FileFacts]) -> tuple[str, tuple[str, ...]]:
    """The root digest, and what is wrong with the manifest."""
    if MANIFEST not in files:
        return "", ()
    try:
        return artefact.load(folder).root, ()
    except ManifestError as error:
        return "unreadable", (str(error),)


def _gguf(folder: Path, files: Mapping[str, FileFacts]) -> GgufFacts | None:
    names = sorted((name for name in files if name.endswith(".gguf")), key=is_projector)
    try:
        found = read_metadata(folder / names[0])
    except (WeightsError, IndexError):
        return None
    architecture = found.get("general.architecture")
    return GgufFacts(
        architecture=architecture if isinstance(architecture, str) else None,
        file_type=_whole(found.get("general.file_type")),
        context=_whole(found.get(f"{architecture}.context_length")),
        kv_values=kv_values(found),
    )


def _whole(value: Value | None) -> int | None:
    return value if isinstance(value, int) else None


def _template(folder: Path) -> dict[str, Any]:
    """Whether there is a chat template, its form of tool calls, and whether it can switch thinking off."""
    text = template_of(folder)
    return {"template": bool(text), "thinking_switch": "enable_thinking" in text, **read_template(text)}


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def _table(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}
