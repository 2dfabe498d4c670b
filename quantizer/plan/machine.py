"""The machine that a plan is for: its memory, its disk, and how fast its GPU is."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, NamedTuple

GIB: Final = 2**30


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


def read_machine(read_host: ReadHost, out: Path, device: str) -> Machine:
    """This machine. out: the output path. device: a torch device that is there."""
    gpu = read_gpu(device) if device.startswith("cuda") else None
    return Machine(gpu, read_host(), free_disk(out), _number("WORLD_SIZE", 1))


def read_gpu(device: str) -> GpuMemory:
    """The GPU that torch calls `device`; of several processes, each has its own."""
    import torch

    index = torch.device(device).index
    index = _number("LOCAL_RANK", 0) if index is None else index
    found = torch.cuda.get_device_properties(index)
    if found.is_integrated or "GB10" in found.name:
        return GpuMemory(found.name)
    free, total = torch.cuda.mem_get_info(index)
    return GpuMemory(found.name, total, free)


def _number(name: str, default: int) -> int:
    """What torchrun has set; `quantizer.core.shard.join` refuses what is no number."""
    text = os.environ.get(name, "")
    return int(text) if text.isascii() and text.isdigit() else default


def free_disk(out: Path) -> int | None:
    """Free bytes of the file system that a path is on, or will be on."""
    for folder in (out, *out.absolute().parents):
        try:
            return shutil.disk_usage(folder).free
        except OSError:
            continue
    return None
