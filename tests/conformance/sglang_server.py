"""A real SGLang on the CPU (`.venv-sglang`), started by the process driver.

SGLang's wheel is that for CUDA. It serves a text model on a CPU with torch's own attention, but its kernels are loaded
all the same, and want NVIDIA's driver library: where there is none, a library with the one function that they name.
"""

import ctypes
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from deploy.drivers.process import ProcessEngine
from deploy.engine.engine import EngineState
from deploy.engine.spec import EngineSpec

ROOT = Path(__file__).parents[2]
PYTHON = ROOT / ".venv-sglang" / "bin" / "python"
WEIGHTS = ROOT / "models" / "annie-nano-hf"
ARGS = (
    "--device", "cpu", "--attention-backend", "torch_native", "--sampling-backend", "pytorch", "--dtype", "bfloat16",
    # On a CPU xgrammar's part of it ends the server ("Unsupported device: cpu").
    "--grammar-backend", "llguidance",
    "--context-length", "4096", "--max-total-tokens", "32768", "--max-running-requests", "16", "--enable-metrics",
    "--enable-cache-report", "--reasoning-parser", "qwen3",
)  # fmt: skip
MISSING = f"no SGLang in {PYTHON.parents[1].name}: make test-sglang installs it"
_DRIVER = "int cuPointerGetAttribute(void) { return 100; }\n"  # CUDA_ERROR_NO_DEVICE


def library_path(folder: Path) -> str:
    """A folder with the driver library, made where the system has none."""
    with suppress(OSError):
        ctypes.CDLL("libcuda.so.1")
        return ""
    folder.mkdir(parents=True, exist_ok=True)
    source = folder / "driver.c"
    source.write_text(_DRIVER, "utf-8")
    library = folder / "libcuda.so.1"
    subprocess.run(["cc", "-shared", "-fPIC", "-Wl,-soname,libcuda.so.1", "-o", library, source], check=True)
    return str(folder)


@asynccontextmanager
async def running_sglang(name: str, args: tuple[str, ...], state: Path) -> AsyncIterator[EngineState]:
    """Start it, wait until it streams, and end it with the block."""
    spec = EngineSpec(
        name=name,
        dialect="sglang",
        driver="process",
        artefact=WEIGHTS,
        command=(str(PYTHON), "-m", "sglang.launch_server"),
        args=(*ARGS, *args),
        env=(
            ("SGLANG_USE_CPU_ENGINE", "1"),
            ("OMP_NUM_THREADS", "1"),
            ("LD_LIBRARY_PATH", library_path(state / "driver")),
        ),
        gpu="none",
    )
    engine = ProcessEngine(spec, state_dir=state)
    try:
        yield await engine.start()
    finally:
        await engine.stop()
