"""`python -m tests.gpu --out DIR`: run everything that is measured on a GPU, one part after another, for a limited time.

Each part (tests/gpu/parts.py) has a folder and a log under DIR, and DIR/NAME/ended once it ended well: the same command
resumes an interrupted session. vLLM is that of `make test-gpu`, or another one by --vllm. Exit code 1: a part failed or
did not run.
"""

import argparse
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Final

from tests.gpu.parts import PARTS, GpuPart

ROOT: Final = Path(__file__).parents[2]


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.gpu", description=__doc__)
    option = parser.add_argument
    option("--out", type=Path, default=Path(".work/gpu"), metavar="DIR", help="default: %(default)s")
    option("--minutes", type=float, default=60.0, help="end after so many (default: %(default)s)")
    option("--only", nargs="+", choices=[part.name for part in PARTS], metavar="PART")
    option("--vllm", default=".venv-gpu/bin/python", metavar="PYTHON", help="default: %(default)s")
    option("--vllm-path", default="", metavar="DIR", help="a folder of vLLM's packages, as its PYTHONPATH")
    given = parser.parse_args()
    out, end, failed = given.out.absolute(), time.monotonic() + 60 * given.minutes, 0
    names = {"vllm": str(Path(given.vllm).absolute()), "path": given.vllm_path, "place": str(out)}
    for part in PARTS:
        if given.only and part.name not in given.only or (out / part.name / "ended").exists():
            continue
        left = end - time.monotonic()
        ready = all((out / name / "ended").exists() for name in part.after)
        code = (
            _run(part, out / part.name, names, min(part.seconds, left))
            if ready and left > part.needs
            else "not run"
        )
        print(f"{time.strftime('%H:%M:%S')} {part.name}: {code or 'well'}", flush=True)
        failed += code != 0
    return int(bool(failed))


def _run(part: GpuPart, folder: Path, names: dict[str, str], seconds: float) -> int:
    """Run a part, and end it with all that it started at its limit; its exit code, 124 at the limit."""
    folder.mkdir(parents=True, exist_ok=True)
    command = part.command
    for name, value in {**names, "out": str(folder)}.items():
        command = command.replace(f"{{{name}}}", value)
    path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    env = {**os.environ, "PYTHONPATH": path, "PYTHONUNBUFFERED": "1", "HF_HUB_OFFLINE": "1"}
    line = f'python() {{ "{sys.executable}" "$@"; }}; {command}'
    with (folder / "log").open("ab") as log:
        limited = ["timeout", "--kill-after=10", str(int(seconds)), "bash", "-c", line]
        code = subprocess.run(
            limited, cwd=ROOT, env=env, stdin=subprocess.DEVNULL, stdout=log, stderr=log
        ).returncode
    if code == 0:
        (folder / "ended").touch()
    return code


if __name__ == "__main__":
    sys.exit(main())
