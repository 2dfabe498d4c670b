"""What the figures were measured on, without the name of the machine."""

import os
import platform
import resource
import time
from importlib.metadata import version
from pathlib import Path

from tests.bench.processes import cpu_seconds

_LOOK_SECONDS = 0.25
_PACKAGES = ("fastapi", "starlette", "uvicorn", "uvloop", "httptools", "msgspec", "aiohttp")


def facts() -> dict[str, str]:
    """Processor, kernel, Python and the packages that matter."""
    return {
        "processor": f"{cpu_model()}, {len(os.sched_getaffinity(0))} cores",
        "kernel": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "packages": ", ".join(f"{name} {version(name)}" for name in _PACKAGES),
    }


def others_seconds() -> float:
    """CPU time that everybody but the bench has used; a host that stole some counts, too.

    Who shares a core with a gateway empties its caches: only what two calls differ by means much.
    """
    ended = resource.getrusage(resource.RUSAGE_CHILDREN)
    return busy_seconds() - cpu_seconds(os.getpid()) - ended.ru_utime - ended.ru_stime


def busy_seconds() -> float:
    """CPU time that anybody has used."""
    ticks = [int(field) for field in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
    idle, waiting = ticks[3], ticks[4]
    return (sum(ticks) - idle - waiting) / os.sysconf("SC_CLK_TCK")


class Patience:
    """Waits for quiet moments, so many seconds in a whole run and no more."""

    def __init__(self, seconds: float) -> None:
        self.left = seconds

    def await_quiet(self, cores: float, at_most: float) -> None:
        """Return when nobody keeps more than `cores` busy, or when patience is over."""
        end = time.monotonic() + min(at_most, self.left)
        while time.monotonic() < end:
            before = busy_seconds()
            time.sleep(_LOOK_SECONDS)
            self.left -= _LOOK_SECONDS
            if busy_seconds() - before <= cores * _LOOK_SECONDS:
                return


def cpu_model() -> str:
    """The processor's name."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "CPU")
