"""Measures an engine's peak memory: of its processes on the host, and of the GPU above its use before.

Host memory is that of the process group, each page counted once (PSS). GPU memory is nvidia-smi's figure for the
whole device, because within a container it cannot distinguish processes. Without a figure, as on a GB10, it is unknown.
"""

import os
import subprocess
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from deploy.drivers.process import members

LOOK_SECONDS: Final = 1.0
_SMI: Final = ("nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits")
_SMI_SECONDS: Final = 10.0


class PeakMemory:
    """Samples once a second, in a separate thread. `host` and `gpu` are in bytes; None if nothing was measured."""

    def __init__(self, leader: Callable[[], int | None], environ: Mapping[str, str] = os.environ) -> None:
        self._leader = leader
        self._device = environ.get("CUDA_VISIBLE_DEVICES", "")
        self._over = threading.Event()
        self._before = gpu_used(self._device)
        self.host: int | None = None
        self.gpu: int | None = None

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Sample until the context ends."""
        thread = threading.Thread(target=self._look, name="peak memory", daemon=True)
        thread.start()
        try:
            yield
        finally:
            self._over.set()
            thread.join()

    def _look(self) -> None:
        while not self._over.wait(LOOK_SECONDS):
            leader = self._leader()
            if leader is not None:
                self.host = max(self.host or 0, group_pss(leader))
            used = gpu_used(self._device) if self._before is not None else None
            if used is not None and self._before is not None:
                self.gpu = max(self.gpu or 0, used - self._before)


def group_pss(leader: int) -> int:
    """Bytes of memory of a process group, with shared pages counted once."""
    return sum(_pss(path) for path in members(leader))


def _pss(process: Path) -> int:
    with suppress(OSError, ValueError, IndexError):  # it has ended meanwhile
        for line in (process / "smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) << 10
    return 0


def gpu_used(device: str) -> int | None:
    """Bytes in use on the first GPU; None if nvidia-smi is missing or does not report them."""
    chosen = ("-i", device.split(",")[0]) if device else ()
    try:
        said = subprocess.run(
            [*_SMI, *chosen], capture_output=True, text=True, timeout=_SMI_SECONDS, check=True
        )
        return int(said.stdout.splitlines()[0]) << 20
    except (OSError, subprocess.SubprocessError, ValueError, IndexError):
        return None
