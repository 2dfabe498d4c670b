"""Atomic output folders: a hidden folder beside the target is renamed at the end, so a result is complete or not there at all."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from safetensors import SafetensorError

from gates.artefact.artefact import MANIFEST
from gates.artefact.durable import sync
from gates.contracts.errors import ManifestError
from quantizer.core.errors import ExportError, first_line


def check_available(out: Path) -> None:
    """Raises ExportError if something exists at `out`, or if its parent folder cannot be created."""
    if out.exists() or out.is_symlink():
        raise ExportError(f"{out}: already exists: name another folder, or remove it")
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ExportError(f"{out.parent}: cannot be made ({error.strerror})") from None


@contextmanager
def atomic_folder(out: Path, kept: Path | None = None) -> Iterator[Path]:
    """Yield an empty working folder, and rename it to `out` when the block has sealed it (written its manifest).

    If anything fails, `out` is not created and the working folder is removed. kept: a working folder that the caller empties
    and removes. Raises ExportError.
    """
    check_available(out)
    work = kept or out.parent / f".{out.name}.unfinished"
    try:
        if not kept:
            shutil.rmtree(work, ignore_errors=True)
        work.mkdir(parents=True, exist_ok=True)
        yield work
        if not (work / MANIFEST).is_file():
            raise ExportError(f"{out}: removed, as it was left without a manifest")
        work.rename(out)
        sync(out.parent)
    except ManifestError as error:
        raise ExportError(str(error)) from None
    except (OSError, SafetensorError) as error:
        raise ExportError(f"{out}: cannot be written ({first_line(error)})") from error
    finally:
        if not kept:
            shutil.rmtree(work, ignore_errors=True)
