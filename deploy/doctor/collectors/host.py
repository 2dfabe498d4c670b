"""Facts about the machine, from /proc, nvidia-smi and nvcc; the checks judge them."""

import json
import os
import platform
import re
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from deploy.doctor.evidence import Gpu, HostFacts, Nvcc, Swap
from deploy.memory.sizing import Memory, read_memory

_GPU: Final = ("nvidia-smi", "--query-gpu=name,compute_cap,driver_version", "--format=csv,noheader")
_IMAGES: Final = "/var/lib/docker"


def ask(command: Sequence[str], seconds: float = 10.0) -> str | None:
    """A program's standard output; None if it is missing, fails, or takes too long."""
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            timeout=seconds,
            stdin=subprocess.DEVNULL,
            errors="replace",
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout if done.returncode == 0 else None


def text_of(path: Path) -> str | None:
    """A file's text; None if it cannot be read."""
    try:
        return path.read_text("utf-8", errors="replace")
    except OSError:
        return None


def host() -> HostFacts:
    """Collect the machine's facts."""
    memory = _memory()
    return HostFacts(
        architecture=platform.machine() or None,
        kernel=platform.release() or None,
        gpus=gpus(ask(_GPU)),
        memory_total=memory.total if memory else None,
        memory_available=memory.available if memory else None,
        swaps=swaps(text_of(Path("/proc/swaps"))),
        toolkit=_found(r"version (\d[\w.]*)", ask(("nvidia-ctk", "--version"))),
        uid=os.geteuid(),
        disk_free=_disk_free(_docker_root(text_of(Path("/etc/docker/daemon.json")))),
        nvccs=_nvccs(),
    )


# ------------------------------------------------------------------------- reading what they print


def swaps(text: str | None) -> tuple[Swap, ...] | None:
    """/proc/swaps."""
    if text is None:
        return None
    rows = [line.split() for line in text.splitlines()[1:]]
    return tuple(Swap(name=row[0], size=int(row[2]) * 1024) for row in rows if len(row) >= 3)


def gpus(text: str | None) -> tuple[Gpu, ...] | None:
    """The GPUs in nvidia-smi's output; an unsupported field, such as "[N/A]", is None."""
    if text is None:
        return None
    rows = [[part.strip() for part in line.split(",")] for line in text.splitlines()]
    known = [[None if word.startswith("[") else word for word in row] for row in rows if len(row) == 3]
    return tuple(Gpu(name=name or "", capability=sm, driver=driver) for name, sm, driver in known)


def release(text: str | None) -> str | None:
    """CUDA's release, as nvcc prints it."""
    return _found(r"release (\d+\.\d+)", text)


def _found(pattern: str, text: str | None) -> str | None:
    found = re.search(pattern, text or "")
    return found[1] if found else None


# ------------------------------------------------------------------------------------ looking around


def _memory() -> Memory | None:
    try:
        return read_memory()
    except (OSError, ValueError):
        return None


def _docker_root(settings: str | None) -> Path:
    """Where Docker keeps its images."""
    try:
        return Path(json.loads(settings or "{}").get("data-root") or _IMAGES)
    except (ValueError, AttributeError, TypeError):
        return Path(_IMAGES)


def _disk_free(root: Path) -> int | None:
    """Free bytes of the folder's file system, or of the nearest readable parent."""
    for folder in (root, *root.parents):
        try:
            return shutil.disk_usage(folder).free
        except OSError:
            continue
    return None


def _nvccs() -> tuple[Nvcc, ...]:
    """Every nvcc in the order in which a build finds it."""
    first = shutil.which("nvcc")
    others = sorted(map(str, Path("/usr/local").glob("cuda*/bin/nvcc")), reverse=True)
    paths = dict.fromkeys([*([first] if first else []), "/usr/bin/nvcc", *others])
    found = [(path, release(ask((path, "--version")))) for path in paths if Path(path).is_file()]
    return tuple(Nvcc(path=path, release=number) for path, number in found if number)
