"""Facts about the machine, from /proc, nvidia-smi, nvcc and the journal; the checks judge them."""

import json
import os
import platform
import re
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from deploy.doctor.collectors.commands import ask, text_of
from deploy.doctor.evidence import Gpu, HostFacts, Nvcc, Swap
from deploy.memory.sizing import Memory, read_memory

Ask = Callable[[Sequence[str]], str | None]
_GPU: Final = (
    "nvidia-smi",
    "--query-gpu=name,compute_cap,driver_version,persistence_mode",
    "--format=csv,noheader",
)
_USERS: Final = ("nvidia-smi", "--query-compute-apps=pid,process_name", "--format=csv,noheader")
_JOURNAL: Final = (
    "journalctl",
    "-k",
    "-b",
    "--no-pager",
    "-q",
    "-o",
    "cat",
    "-g",
    "NVRM: Xid|NV_ERR_NO_MEMORY",
)
_CDI: Final = ("/etc/cdi", "/var/run/cdi")


def host(*, ask: Ask = ask, proc: Path = Path("/proc")) -> HostFacts:
    """Collect the machine's facts."""
    memory = _memory(proc / "meminfo")
    synced = ask(("timedatectl", "show", "-p", "NTPSynchronized", "--value"))
    return HostFacts(
        architecture=platform.machine() or None,
        kernel=platform.release() or None,
        gpus=gpus(ask(_GPU)),
        gpu_processes=gpu_processes(ask(_USERS)),
        memory_total=memory.total if memory else None,
        memory_available=memory.available if memory else None,
        swaps=swaps(text_of(proc / "swaps")),
        toolkit=toolkit(ask(("nvidia-ctk", "--version"))),
        cdi=_cdi(),
        uid=os.geteuid() if hasattr(os, "geteuid") else None,
        disk_free=_disk_free(_docker_root(text_of(Path("/etc/docker/daemon.json")))),
        journal=_journal(ask),
        time_synchronized=None if synced is None else synced.strip() == "yes",
        nvccs=_nvccs(ask),
    )


# ------------------------------------------------------------------------- reading what they print


def swaps(text: str | None) -> tuple[Swap, ...] | None:
    """/proc/swaps."""
    if text is None:
        return None
    rows = [line.split() for line in text.splitlines()[1:]]
    return tuple(Swap(name=row[0], size=int(row[2]) * 1024) for row in rows if len(row) >= 3)


def gpus(text: str | None) -> tuple[Gpu, ...] | None:
    """The GPUs in nvidia-smi's output; an unsupported field is None."""
    if text is None:
        return None
    rows = [[part.strip() for part in line.split(",")] for line in text.splitlines() if line.strip()]
    return tuple(
        Gpu(
            name=row[0],
            capability=_known(row[1]),
            driver=_known(row[2]),
            persistent={"enabled": True, "disabled": False}.get(row[3].lower()),
        )
        for row in rows
        if len(row) == 4
    )


def _known(word: str) -> str | None:
    return None if word.startswith("[") or not word else word


def gpu_processes(text: str | None) -> tuple[str, ...] | None:
    """Names and pids of CUDA processes."""
    if text is None:
        return None
    rows = [line.partition(",") for line in text.splitlines() if line.strip()[:1].isdigit()]
    return tuple(f"{Path(name.strip()).name} ({pid.strip()})" for pid, _, name in rows)


def toolkit(text: str | None) -> str | None:
    """nvidia-ctk's version."""
    found = re.search(r"version (\d[\w.]*)", text or "")
    return found[1] if found else None


def release(text: str | None) -> str | None:
    """CUDA's release, as nvcc and ptxas print it."""
    found = re.search(r"release (\d+\.\d+)", text or "")
    return found[1] if found else None


# ------------------------------------------------------------------------------------ looking around


def _memory(path: Path) -> Memory | None:
    try:
        return read_memory(path)
    except (OSError, ValueError):
        return None


def _cdi() -> tuple[str, ...] | None:
    found: list[str] = []
    for folder in map(Path, _CDI):
        try:
            found += [
                str(p)
                for p in sorted(folder.iterdir())
                if p.suffix in (".yaml", ".json") and "nvidia" in p.name
            ]
        except FileNotFoundError:
            continue
        except OSError:
            return None
    return tuple(found)


def _docker_root(settings: str | None) -> Path:
    """Where Docker keeps its images."""
    try:
        return Path(json.loads(settings or "{}").get("data-root") or "/var/lib/docker")
    except (ValueError, AttributeError, TypeError):
        return Path("/var/lib/docker")


def _disk_free(root: Path) -> int | None:
    """Free bytes of the folder's file system, or of the nearest readable parent."""
    for folder in (root, *root.parents):
        try:
            return shutil.disk_usage(folder).free
        except OSError:
            continue
    return None


def _journal(ask: Ask) -> tuple[str, ...] | None:
    """Matching kernel lines. `journalctl -g` exits with 1 if none matches, so () needs proof that the journal is readable."""
    found = ask(_JOURNAL)
    if found is not None:
        return tuple(line.strip() for line in found.splitlines() if line.strip())
    kernel = ask(("journalctl", "-k", "-b", "--no-pager", "-q", "-o", "cat", "-n", "1"))
    return () if kernel and kernel.strip() else None


def _nvccs(ask: Ask) -> tuple[Nvcc, ...]:
    """Every nvcc in the order in which a build finds it."""
    first = shutil.which("nvcc")
    others = sorted(map(str, Path("/usr/local").glob("cuda*/bin/nvcc")), reverse=True)
    paths = dict.fromkeys([*([first] if first else []), "/usr/bin/nvcc", *others])
    found = [(path, release(ask((path, "--version")))) for path in paths if Path(path).is_file()]
    return tuple(Nvcc(path=path, release=number) for path, number in found if number)
