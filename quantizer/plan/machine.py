"""The machine that a plan is for: its memory, its disk, and how fast its GPU is. nvidia-smi tells, so torch is not needed."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, NamedTuple

GIB: Final = 2**30
MIB: Final = 2**20


class HostMemory(NamedTuple):
    """A host's memory in bytes. floor: the amount that has to stay available."""

    total: int
    available: int
    floor: int


ReadHost = Callable[[], HostMemory | None]
"""Reads the host's memory now; None where it is unknown."""


@dataclass(frozen=True, slots=True)
class GpuMemory:
    """A GPU. total, free: bytes of its own memory; None if it shares the host's."""

    name: str
    total: int | None = None
    free: int | None = None


@dataclass(frozen=True, slots=True)
class Machine:
    """What a plan has to fit into; None is unknown, `gpu` None is the CPU. `processes` share a training, each with its own GPU."""

    gpu: GpuMemory | None = None
    host: HostMemory | None = None
    disk: int | None = None
    processes: int = 1

    @property
    def unified(self) -> bool:
        """Whether device and host memory are one: on a CPU, and on a GPU without memory of its own."""
        return self.gpu is None or self.gpu.total is None

    @property
    def idle(self) -> Machine:
        """The same machine without other load."""
        gpu = self.gpu and replace(self.gpu, free=self.gpu.total)
        host = self.host and self.host._replace(available=self.host.total)
        return replace(self, gpu=gpu, host=host)

    @property
    def name(self) -> str:
        return self.gpu.name if self.gpu else "CPU"


@dataclass(frozen=True, slots=True)
class Accelerator:
    """Data-sheet figures of a GPU. flops: BF16 products a second, dense. bandwidth: bytes a second."""

    flops: float
    bandwidth: float


ACCELERATORS: Final[Mapping[str, Accelerator]] = {
    "H200": Accelerator(989e12, 4.8e12),
    "H100": Accelerator(989e12, 3.35e12),
    "GB10": Accelerator(125e12, 273e9),
}
"""By a part of the product name. Sources: NVIDIA's data sheets of H100 and H200 (SXM); DGX Spark's says 1 PFLOP of FP4 with
sparsity, of which dense BF16 is an eighth, and 273 GB/s."""

NAMED: Final[Mapping[str, Machine]] = {
    "spark": Machine(GpuMemory("NVIDIA GB10"), HostMemory(int(121.7 * GIB), int(117 * GIB), 12 * GIB)),
    "h100": Machine(
        GpuMemory("NVIDIA H100", int(79.2 * GIB), int(78.7 * GIB)), HostMemory(128 * GIB, 120 * GIB, 12 * GIB)
    ),
    "h200": Machine(
        GpuMemory("NVIDIA H200", int(139.8 * GIB), int(139.3 * GIB)),
        HostMemory(128 * GIB, 120 * GIB, 12 * GIB),
    ),
}
"""Idle machines to plan for from another one: a DGX Spark, and one GPU of a larger host."""


def accelerator(name: str) -> Accelerator | None:
    """The figures of a GPU by its product name; None if unknown."""
    return next((figures for part, figures in ACCELERATORS.items() if part in name), None)


def read_machine(read_host: ReadHost, out: Path, device: str | None) -> Machine:
    """This machine. out: the output path. device: a torch device; None for a GPU if there is one."""
    gpu = None if device == "cpu" else read_gpu(device)
    size = os.environ.get("WORLD_SIZE", "1")
    return Machine(gpu, read_host(), free_disk(out), int(size) if size.isascii() and size.isdigit() else 1)


def read_gpu(device: str | None = None, environment: Mapping[str, str] = os.environ) -> GpuMemory | None:
    """The GPU that torch would call `device`; None if there is none, or nvidia-smi cannot say."""
    _, _, number = (device or "cuda").partition(":")
    index = number if number.isdigit() else environment.get("LOCAL_RANK", "0")
    visible = environment.get("CUDA_VISIBLE_DEVICES")
    if visible is not None:
        listed = [part.strip() for part in visible.split(",")]
        if not index.isdigit() or int(index) >= len(listed) or not listed[int(index)]:
            return None
        index = listed[int(index)]
    query = (
        "nvidia-smi",
        "-i",
        index,
        "--query-gpu=name,memory.total,memory.free",
        "--format=csv,noheader,nounits",
    )
    try:
        done = subprocess.run(query, capture_output=True, text=True, timeout=20, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return parse_gpu(done.stdout)


def parse_gpu(text: str) -> GpuMemory | None:
    """nvidia-smi's line: "NVIDIA H200, 143771, 143200" in MiB; a GB10 has "[N/A]" or "Not Supported" there."""
    parts = [part.strip() for part in text.partition("\n")[0].split(",")]
    if len(parts) != 3 or not parts[0]:
        return None
    total, free = (int(part) * MIB if part.isascii() and part.isdigit() else None for part in parts[1:])
    if total is None or free is None or "GB10" in parts[0]:
        return GpuMemory(parts[0])
    return GpuMemory(parts[0], total, free)


def free_disk(out: Path) -> int | None:
    """Free bytes of the file system that a path is on, or will be on."""
    for folder in (out, *out.absolute().parents):
        try:
            return shutil.disk_usage(folder).free
        except OSError:
            continue
    return None
