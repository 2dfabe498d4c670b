"""One target under atheris (libFuzzer): `python -m tests.fuzz.worker TARGET [libFuzzer options] FOLDER…`.

A process of its own: libFuzzer takes the process over, and what is measured is instrumented at its import.
"""

import ctypes
import importlib
import os
import shlex
import sys
from typing import Any

SUBJECTS = ["app", "deploy", "gates", "quantizer.verify"]


def target_of(name: str) -> Any:
    """The target of this name. Raises KeyError."""
    module = importlib.import_module("tests.fuzz.weights" if name == "safetensors" else "tests.fuzz.targets")
    return module.TARGETS[name]


def fuzz(name: str, options: list[str]) -> None:
    """Fuzz until libFuzzer ends the process."""
    import atheris

    with atheris.instrument_imports(include=SUBJECTS):
        target = target_of(name)
    again = (
        f"{shlex.quote(sys.executable)} -m tests.fuzz.worker {name}"  # libFuzzer's merge runs its own argv
    )
    atheris.Setup([again, *options], target.run)
    atheris.Fuzz()


def fuzz_forked(name: str, options: list[str], log: str) -> None:
    """The same in a process that was forked from `tests.fuzz.instrumented`; what it says is in a file."""
    with open(log, "wb") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    try:
        fuzz(name, options)
    finally:  # C's, at which libFuzzer keeps the input that raised something
        ctypes.CDLL(None).exit(1)


if __name__ == "__main__":
    fuzz(sys.argv[1], sys.argv[2:])
