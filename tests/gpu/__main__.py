"""`python -m tests.gpu --out DIR`: run everything that is measured on a GPU in one session, for a limited time.

Each GPU takes the next part that it can do (tests/gpu/parts.py); --plan prints the schedule without running it.
Each part has a folder and a log under DIR; DIR/gpu.md is rewritten whenever a part ends, and the same command resumes
an interrupted session. vLLM is that of `make test-gpu`, or another one by --vllm. Exit code 1: a part failed or did not run.
"""

import argparse
import subprocess
import sys
from pathlib import Path

from tests.gpu.parts import PARTS, GpuPart
from tests.gpu.schedule import plan_table, planned
from tests.gpu.session import GpuSession, done_before


def main(arguments: list[str] | None = None) -> int:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.gpu", description=__doc__)
    option = parser.add_argument
    option("--out", type=Path, default=Path(".work/gpu"), metavar="DIR", help="default: %(default)s")
    option("--minutes", type=float, default=60.0, help="end after so many (default: %(default)s)")
    option("--gpus", type=int, help="how many to use (default: those that nvidia-smi lists)")
    option("--only", nargs="+", choices=[part.name for part in PARTS], metavar="PART")
    option(
        "--plan",
        action="store_true",
        help="run nothing: print which part would run when and where (--gpus: on how many)",
    )
    option("--vllm", default=".venv-gpu/bin/python", metavar="PYTHON", help="default: %(default)s")
    option("--vllm-path", default="", metavar="DIR", help="a folder of vLLM's packages, as its PYTHONPATH")
    given = parser.parse_args(arguments)
    count = given.gpus if given.gpus is not None else _gpus()
    if not count:
        print("tests.gpu needs a CUDA GPU, and nvidia-smi finds none here", file=sys.stderr)
        return 69
    parts = _chosen(given.only)
    if given.plan:
        left = [part for part in parts if part.name not in (done := done_before(given.out))]
        print(plan_table(left, planned(left, count, 60 * given.minutes, done)))
        return 0
    names = {"vllm": str(Path(given.vllm).absolute()), "path": given.vllm_path}
    session = GpuSession(parts, count, given.out.absolute(), 60 * given.minutes, names)
    session.run()
    print(session.table())
    return 1 if session.missing else 0


def _chosen(names: list[str] | None) -> list[GpuPart]:
    """The named parts, and what they need."""
    wanted = set(names or [part.name for part in PARTS])
    for part in reversed(PARTS):
        if part.name in wanted:
            wanted |= set(part.after)
    return [part for part in PARTS if part.name in wanted]


def _gpus() -> int:
    try:
        said = subprocess.run(("nvidia-smi", "-L"), capture_output=True, text=True, check=False).stdout
    except OSError:
        return 0
    return sum(line.startswith("GPU ") for line in said.splitlines())


if __name__ == "__main__":
    sys.exit(main())
