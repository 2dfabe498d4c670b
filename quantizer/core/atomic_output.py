"""A result is whole or it is not there: work goes on in a hidden folder beside it, which takes its name at the end."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from safetensors import SafetensorError

from gates.artefact.manifest import MANIFEST
from gates.contracts.errors import ArtefactError
from quantizer.core.errors import ExportError


def check_free(out: Path) -> None:
    """Raises ExportError if there is something at `out` already, or its parent is no folder that can be made."""
    if out.exists() or out.is_symlink():
        raise ExportError(f"{out}: is there already; name another folder, or remove it")
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ExportError(f"{out.parent}: cannot be made ({error.strerror})") from None


@contextmanager
def placed(out: Path) -> Iterator[Path]:
    """Gives an empty folder to work in, and renames it to `out` when the block ends well and has sealed it.

    Whatever goes wrong, `out` does not come to be, and the unfinished folder is removed; one that a killed run left
    is removed by the next run. Raises ExportError: `out` is taken, the disk is full, a file cannot be written.
    """
    check_free(out)
    work = out.parent / f".{out.name}.unfinished"
    try:
        shutil.rmtree(work, ignore_errors=True)
        work.mkdir()
        yield work
        if not (work / MANIFEST).is_file():
            raise ExportError(f"{out}: was not sealed, so it is not kept")
        work.rename(out)
        _sync(out.parent)
    except ArtefactError as error:
        raise ExportError(str(error)) from None
    except (OSError, SafetensorError) as error:
        raise ExportError(f"{out}: cannot be written ({_reason(error)})") from error
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _reason(error: OSError | SafetensorError) -> str:
    return (error.strerror if isinstance(error, OSError) else None) or str(error).splitlines()[0]


def _sync(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
