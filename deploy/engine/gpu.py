"""The GPUs of this machine."""

from pathlib import Path
from typing import Final

NO_GPU: Final = "none"


def host_gpu(root: Path = Path("/proc/driver/nvidia/gpus")) -> str:
    """The names of the GPUs from the NVIDIA driver, or "none"."""
    found = []
    for card in sorted(root.glob("*/information")):
        lines = card.read_text("utf-8").splitlines()
        found += [line.partition(":")[2].strip() for line in lines if line.startswith("Model")]
    return ", ".join(found) or NO_GPU
