"""The cost of a run: seconds of each part, peak memory and the machine. Recorded in the artefact's recipe."""

import platform
import resource
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, version
from time import perf_counter
from typing import Any, Final

import torch

from quantizer.core.errors import UnavailableError, first_line

TOOLS: Final = ("torch", "transformers", "tokenizers", "safetensors", "numpy")


class Cost:
    """A stopwatch with named parts. device: "cpu", "cuda" or "cuda:0", where the model is."""

    def __init__(self, device: str) -> None:
        self.device = torch.device(device)
        self.seconds: dict[str, float] = {}
        if self.device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(self.device)

    @contextmanager
    def part(self, name: str) -> Iterator[None]:
        """Add the time of a `with` block to a named part, including work that the device has not finished yet."""
        started = perf_counter()
        try:
            yield
        finally:
            if self.device.type == "cuda":
                torch.cuda.synchronize(self.device)
            self.seconds[name] = self.seconds.get(name, 0.0) + perf_counter() - started

    def facts(self) -> dict[str, Any]:
        """The measurements as JSON values. On a CPU, the memory is that of the whole process since it started."""
        return {
            "device": device_name(self.device),
            "seconds": {name: round(seconds, 2) for name, seconds in self.seconds.items()},
            "peak_memory_bytes": peak_memory(self.device),
        }


def chosen_device(name: str | None) -> str:
    """The requested device; by default a GPU if torch sees one. Raises UnavailableError if torch cannot use it on this machine."""
    if name is None:
        return "cuda" if torch.cuda.is_available() else "cpu"
    try:
        torch.empty(0, device=name)
    except (AssertionError, RuntimeError) as error:  # without CUDA built in it is an AssertionError
        raise UnavailableError(f"--device {name}: {first_line(error)}") from None
    return name


def device_name(device: torch.device) -> str:
    """The device's product name; for a CPU its architecture and thread count."""
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return f"CPU ({platform.machine()}, {torch.get_num_threads()} threads)"


def peak_memory(device: torch.device) -> int:
    """The largest number of bytes allocated at any time so far."""
    if device.type == "cuda":
        return int(torch.cuda.max_memory_allocated(device))
    unit = 1 if sys.platform == "darwin" else 1024
    return int(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss) * unit


def tools(*more: str) -> dict[str, str]:
    """Installed versions of the packages involved, this program first. more: names of further packages."""
    return {name: found for name in ("manners", *TOOLS, *more) if (found := _version(name))}


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None
