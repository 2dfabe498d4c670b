"""Finds the `.gguf` file of an embedded engine."""

from pathlib import Path

from deploy.core.errors import WeightsError

MANIFEST = "artefact.json"


def find_gguf(artefact: Path) -> Path:
    """The one `.gguf` that an artefact names: the file itself, or the only one in its folder.

    A folder needs its manifest, which is written last: without it, the folder is incomplete.

    Raises:
        WeightsError: nothing there, an unfinished folder, no `.gguf`, or more than one.
    """
    if artefact.is_file():
        if artefact.suffix != ".gguf":
            raise WeightsError(f"{artefact} is not a .gguf file")
        return artefact
    if not artefact.is_dir():
        raise WeightsError(f"{artefact} does not exist")
    if not (artefact / MANIFEST).is_file():
        raise WeightsError(f"{artefact} has no {MANIFEST}: it is not a finished artefact")
    found = sorted(path for path in artefact.iterdir() if path.suffix == ".gguf")
    if len(found) != 1:
        names = ", ".join(path.name for path in found) or "none"
        raise WeightsError(f"{artefact} must hold exactly one .gguf, and holds {names}")
    return found[0]
