"""What the figures were measured on, without the name of the machine."""

import os
import platform
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

_PACKAGES = ("fastapi", "starlette", "uvicorn", "uvloop", "httptools", "msgspec", "aiohttp")


def facts() -> dict[str, str]:
    """Processor, kernel, Python and the packages that matter."""
    return {
        "processor": f"{_cpu_model()}, {len(os.sched_getaffinity(0))} cores",
        "kernel": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "packages": ", ".join(f"{name} {_version(name)}" for name in _PACKAGES),
    }


def load_average() -> float:
    """Over the last minute: how busy others kept the machine."""
    return os.getloadavg()[0]


def _cpu_model() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "missing"
