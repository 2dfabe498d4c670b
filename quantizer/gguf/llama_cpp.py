"""Run llama.cpp's own programs, given by path: convert_hf_to_gguf.py and llama-quantize.

They support every architecture. A wrapper script that runs a container works as well as the program itself. The
converter runs code of the model folder, so folders with code (`auto_map`) are rejected beforehand.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from quantizer.core.errors import ExportError, UnavailableError

MAGIC: Final = b"GGUF"
LAST: Final = 300  # characters of a program's last line that are reported


@dataclass(frozen=True, slots=True)
class LlamaCppPrograms:
    """The paths of the programs; None if not given."""

    converter: Path | None = None
    quantize: Path | None = None

    def check(self) -> None:
        """Raises UnavailableError if a program that was given does not exist."""
        for path in (self.converter, self.quantize):
            if path is not None and not path.is_file():
                raise UnavailableError(f"{path}: there is no such program")


def converter_argv(converter: Path, folder: Path, target: Path, kind: str) -> list[str]:
    """The command that converts a folder to F16, or an NVFP4 folder as it is, with unpacked tensors in BF16."""
    start = [sys.executable, str(converter)] if converter.suffix == ".py" else [str(converter)]
    return [*start, str(folder), "--outfile", str(target), "--outtype", "bf16" if kind == "nvfp4" else "f16"]


def quantize_argv(quantize: Path, source: Path, target: Path, kind: str) -> list[str]:
    """The command that converts an F16 file to a mix; llama-quantize expects its name in capitals."""
    return [str(quantize), str(source), str(target), kind.upper()]


def run(argv: Sequence[str], target: Path) -> None:
    """Run a program that writes `target`. Raises ExportError with its last line if it fails or writes no GGUF file."""
    try:
        done = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, check=False)
    except OSError as error:
        raise ExportError(f"{argv[0]}: cannot be run ({error.strerror})") from None
    if done.returncode:
        lines = (done.stderr or done.stdout).decode(errors="replace").strip().splitlines() or [
            "it said nothing"
        ]
        raise ExportError(f"{_name(argv)} ended with {done.returncode}: {lines[-1][:LAST]}")
    if not is_gguf(target):
        raise ExportError(f"{_name(argv)} ended well and wrote no GGUF file")


def is_gguf(path: Path) -> bool:
    """Whether a file begins with GGUF's magic bytes."""
    if not path.is_file():
        return False
    with path.open("rb") as file:
        return file.read(len(MAGIC)) == MAGIC


def _name(argv: Sequence[str]) -> str:
    return Path(argv[1] if argv[0] == sys.executable else argv[0]).name
