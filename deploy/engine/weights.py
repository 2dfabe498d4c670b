"""Finds what an engine loads: a `.gguf` file, or a finished folder."""

from pathlib import Path

from deploy.core.errors import WeightsError
from deploy.engine.dialects import DIALECTS
from deploy.engine.spec import EngineSpec

MANIFEST = "artefact.json"


def find_model(spec: EngineSpec) -> Path:
    """The absolute path of what an engine loads: one `.gguf`, or a folder or file. Raises WeightsError."""
    assert spec.artefact is not None  # every driver that loads one needs it
    if DIALECTS[spec.dialect].gguf:
        return find_gguf(spec.artefact).resolve()
    if not spec.artefact.is_file():
        _check_finished(spec.artefact)
    return spec.artefact.resolve()


def find_gguf(artefact: Path) -> Path:
    """The one `.gguf` that an artefact names: the file itself, or the only one in its finished folder. Raises WeightsError."""
    if artefact.is_file():
        if artefact.suffix != ".gguf":
            raise WeightsError(f"{artefact} is not a .gguf file")
        return artefact
    _check_finished(artefact)
    found = [path for path in _ggufs(artefact) if not is_projector(path.name)]
    if len(found) != 1:
        names = ", ".join(path.name for path in found) or "none"
        raise WeightsError(f"{artefact} must hold exactly one .gguf, and holds {names}")
    return found[0]


def find_projector(artefact: Path) -> Path | None:
    """The one `mmproj*.gguf` of a folder, or beside its only model. Raises WeightsError: it has more than one."""
    files = _ggufs(artefact if artefact.is_dir() else artefact.parent)
    found = [path for path in files if is_projector(path.name)]
    if artefact.is_file() and len(files) - len(found) > 1:
        return None  # of which model it is, nobody says
    if len(found) > 1:
        raise WeightsError(f"{artefact} must have at most one mmproj*.gguf, and has {len(found)}")
    return found[0] if found else None


def is_projector(name: str) -> bool:
    """Whether this is the name of a file that makes images and sounds into tokens, by llama.cpp's custom."""
    return name.startswith("mmproj")


def _ggufs(folder: Path) -> list[Path]:
    return sorted(path for path in folder.iterdir() if path.suffix == ".gguf")


def _check_finished(folder: Path) -> None:
    if not folder.is_dir():
        raise WeightsError(f"{folder} does not exist")
    if not (folder / MANIFEST).is_file():
        raise WeightsError(f"{folder} has no {MANIFEST}: it is not a finished artefact")
