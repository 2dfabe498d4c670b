"""`python -m tests.gpu --out DIR`: run everything that is measured on a GPU, one part after another, for a limited time.

Each part (tests/gpu/parts.py) has a folder and a log under DIR; DIR/gpu.md is rewritten whenever a part ends, and the same
command resumes an interrupted session. vLLM is that of `make test-gpu`, or another one by --vllm. Exit code 1: a part failed
or did not run.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from tests.gpu.parts import PARTS, GpuPart

ROOT: Final = Path(__file__).parents[2]
MARGIN: Final = 20.0
"""Seconds between the budget that a command is told and its end from outside: for engines to stop."""
GRACE: Final = 10.0
"""Seconds that a part has to end by itself after SIGTERM."""
Done = dict[str, dict[str, Any]]
"""Seconds and exit code of each part that has ended; None: it was ended at its limit."""


def main(arguments: list[str] | None = None) -> int:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.gpu", description=__doc__)
    option = parser.add_argument
    option("--out", type=Path, default=Path(".work/gpu"), metavar="DIR", help="default: %(default)s")
    option("--minutes", type=float, default=60.0, help="end after so many (default: %(default)s)")
    option("--only", nargs="+", choices=[part.name for part in PARTS], metavar="PART")
    option("--vllm", default=".venv-gpu/bin/python", metavar="PYTHON", help="default: %(default)s")
    option("--vllm-path", default="", metavar="DIR", help="a folder of vLLM's packages, as its PYTHONPATH")
    given = parser.parse_args(arguments)
    parts, out = _chosen(given.only), given.out.absolute()
    out.mkdir(parents=True, exist_ok=True)
    done = _done_before(out)
    end = time.monotonic() + 60 * given.minutes
    names = {"vllm": str(Path(given.vllm).absolute()), "path": given.vllm_path, "place": str(out)}
    for part in parts:
        ready = all(done.get(name, {}).get("code") == 0 for name in part.after)
        if part.name in done or not ready or end - time.monotonic() < part.needs:
            continue
        done[part.name] = _run(part, out / part.name, names, min(part.seconds, end - time.monotonic()))
        for name, text in (("gpu.json", json.dumps(done, indent=1) + "\n"), ("gpu.md", _table(parts, done))):
            (out / name).write_text(text, "utf-8")
    print(_table(parts, done))
    return int(any(done.get(part.name, {}).get("code") != 0 for part in parts))


def _chosen(names: list[str] | None) -> list[GpuPart]:
    """The named parts, and what they need."""
    wanted = set(names or [part.name for part in PARTS])
    for part in reversed(PARTS):
        if part.name in wanted:
            wanted |= set(part.after)
    return [part for part in PARTS if part.name in wanted]


def _done_before(out: Path) -> Done:
    file = out / "gpu.json"
    earlier: Done = json.loads(file.read_text("utf-8")) if file.exists() else {}
    return {name: one for name, one in earlier.items() if one["code"] == 0}


def _run(part: GpuPart, folder: Path, names: Mapping[str, str], seconds: float) -> dict[str, Any]:
    """Run a part and end it, with all that it started, at its limit."""
    folder.mkdir(exist_ok=True)
    command = part.command
    for name, value in {**names, "out": str(folder), "budget": str(max(1, int(seconds - MARGIN)))}.items():
        command = command.replace(f"{{{name}}}", value)
    path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    env = {**os.environ, "PYTHONPATH": path, "PYTHONUNBUFFERED": "1", "HF_HUB_OFFLINE": "1"}
    line = f'python() {{ "{sys.executable}" "$@"; }}; {command}'
    print(f"{time.strftime('%H:%M:%S')} {part.name} begins", flush=True)
    began = time.monotonic()
    with (folder / "log").open("ab") as log:
        process = subprocess.Popen(["bash", "-c", line], cwd=ROOT, env=env, stdin=subprocess.DEVNULL,
                                   stdout=log, stderr=log, start_new_session=True)  # fmt: skip
    try:
        code: int | None = process.wait(seconds)
    except subprocess.TimeoutExpired:
        code = None
    finally:
        _end(process)
    print(f"{time.strftime('%H:%M:%S')} {part.name} ended: {code}", flush=True)
    return {"seconds": round(time.monotonic() - began, 1), "code": code}


def _end(process: subprocess.Popen[bytes]) -> None:
    for sent, seconds in ((signal.SIGTERM, GRACE), (signal.SIGKILL, None)):
        with suppress(ProcessLookupError):
            os.killpg(process.pid, sent)
        with suppress(subprocess.TimeoutExpired):
            process.wait(seconds)
            return


def _table(parts: Sequence[GpuPart], done: Done) -> str:
    """What became of each part, as Markdown."""
    rows = ["| part | seconds | ended |", "|---|---|---|"]
    for part in parts:
        one = done.get(part.name)
        how = (
            "not reached"
            if one is None
            else {0: "well", None: "at its limit"}.get(one["code"], f"with {one['code']}")
        )
        rows.append(f"| {part.name} | {one['seconds'] if one else ''} | {how} |")
    return "\n".join(rows) + "\n"


if __name__ == "__main__":
    sys.exit(main())
