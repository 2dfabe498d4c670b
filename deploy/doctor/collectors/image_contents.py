"""Prints an image's contents as one line of JSON. Runs inside the container, so it uses only the standard library."""

import json
import subprocess
import sys
from importlib import import_module, metadata
from pathlib import Path
from typing import Any


def _say(*command: str) -> str:
    """A program's standard output; "" if it is missing."""
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=60).stdout
    except (OSError, subprocess.SubprocessError):
        return ""


def _version(*names: str) -> str:
    for name in names:
        try:
            return metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return ""


def _torch() -> dict[str, Any]:
    try:
        torch: Any = import_module("torch")
        # get_arch_list() is empty where torch cannot reach the GPU; the flags it was built with are not.
        archs = torch.cuda.get_arch_list() or (torch._C._cuda_getArchFlags() or "").split()
        return {"cuda": str(torch.version.cuda or ""), "torch_archs": list(archs)}
    except (ImportError, OSError, RuntimeError, AttributeError):
        return {"torch_archs": None, "cuda": None}


def _flashinfer_archs() -> "list[str] | None":
    """Architectures of FlashInfer's compiled kernels, from cuobjdump's list; None if it cannot tell."""
    spec = next(
        (Path(p) / "flashinfer_jit_cache" for p in sys.path if (Path(p) / "flashinfer_jit_cache").is_dir()),
        None,
    )
    if spec is None:
        return []
    objects = sorted(spec.rglob("*fp4*.so")) or sorted(spec.rglob("*.so"))
    listed = [_say("cuobjdump", "--list-elf", str(path)) for path in objects[:4]]
    words = " ".join(listed).replace(".", " ").split()
    found = sorted({word for word in words if word.startswith("sm_")})
    return found or None


def main() -> None:
    facts = {
        **_torch(),
        "vllm": _version("vllm"),
        "transformers": _version("transformers"),
        "flashinfer": _version("flashinfer-python", "flashinfer"),
        "flashinfer_archs": _flashinfer_archs(),
        "nvcc": _say("nvcc", "--version") or _say("/usr/local/cuda/bin/nvcc", "--version"),
    }
    print(json.dumps(facts))  # noqa: T201


if __name__ == "__main__":
    main()
