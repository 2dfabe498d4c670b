"""One target under atheris (libFuzzer): `python -m tests.fuzz.worker TARGET [libFuzzer options] FOLDER…`.

A process of its own: libFuzzer takes the process over, and what is measured is instrumented at its import.
"""

import importlib
import shlex
import sys
from typing import Any

SUBJECTS = ["app", "deploy", "gates", "quantizer.verify"]


def target_of(name: str) -> Any:
    """The target of this name. Raises KeyError."""
    module = importlib.import_module("tests.fuzz.weights" if name == "safetensors" else "tests.fuzz.targets")
    return module.TARGETS[name]


def main() -> None:
    """Fuzz until libFuzzer ends the process."""
    import atheris

    name, *options = sys.argv[1:]
    with atheris.instrument_imports(include=SUBJECTS):
        target = target_of(name)
    again = (
        f"{shlex.quote(sys.executable)} -m tests.fuzz.worker {name}"  # libFuzzer's merge runs its own argv
    )
    atheris.Setup([again, *options], target.run)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
