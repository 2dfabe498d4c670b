"""Begin each part as soon as a GPU is free for it, end it at its limit, and write down what became of it."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from tests.gpu.parts import GpuPart
from tests.gpu.schedule import PlacedPart, next_part

ROOT: Final = Path(__file__).parents[2]
LOOK_SECONDS: Final = 0.2
MARGIN: Final = 20.0
"""Seconds between the budget that a command is told and its end from outside: for engines to stop."""
GRACE: Final = 10.0
"""Seconds that a part has to end by itself after SIGTERM."""


@dataclass
class RunningPart:
    """A part that has been begun. Its times are the monotonic clock's."""

    placed: PlacedPart
    process: subprocess.Popen[bytes]


@dataclass
class GpuSession:
    """`done` is what is known of each part that has ended: GPU, seconds, exit code (None: ended at its limit)."""

    parts: Sequence[GpuPart]
    gpus: int
    out: Path
    seconds: float
    names: Mapping[str, str]
    running: list[RunningPart] = field(default_factory=list)
    done: dict[str, dict[str, Any]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.out.mkdir(parents=True, exist_ok=True)
        self.done = done_before(self.out)
        self._end = time.monotonic() + self.seconds

    @property
    def missing(self) -> list[str]:
        """Parts that did not end well."""
        return [one.name for one in self.parts if self.done.get(one.name, {}).get("code") != 0]

    def run(self) -> None:
        """Until every part has ended, or the time has. Nothing that was begun is left behind."""
        try:
            while True:
                self._collect()
                while (chosen := self._next()) is not None:
                    self._begin(*chosen)
                if not self.running:
                    return
                time.sleep(LOOK_SECONDS)
        finally:
            for one in self.running:
                _end(one.process)
            self._collect()

    def table(self) -> str:
        """What became of each part, as Markdown."""
        rows = ["| part | GPU | seconds | ended |", "|---|---|---|---|"]
        busy = {one.placed.part.name for one in self.running}
        for part in self.parts:
            one = self.done.get(part.name)
            if one is None:
                rows.append(f"| {part.name} | | | {'runs' if part.name in busy else 'not reached'} |")
                continue
            how = {0: "well", None: "at its limit"}.get(one["code"], f"with {one['code']}")
            rows.append(f"| {part.name} | {one['gpu']} | {one['seconds']} | {how} |")
        return "\n".join(rows) + "\n"

    # ---------------------------------------------------------------------------------- begin and end

    def _next(self) -> tuple[GpuPart, int] | None:
        ended = {name: one["code"] == 0 for name, one in self.done.items()}
        return next_part(
            self.parts, self.gpus, self._end - time.monotonic(), ended, [one.placed for one in self.running]
        )

    def _begin(self, part: GpuPart, gpu: int) -> None:
        folder = self.out / part.name
        folder.mkdir(exist_ok=True)
        names = {**self.names, "out": str(folder), "place": str(self.out), "here": str(ROOT)}
        now = time.monotonic()
        until = min(now + part.seconds, self._end)
        names["budget"] = str(max(1, int(until - now - MARGIN)))
        command = part.command
        for name, value in names.items():
            command = command.replace(f"{{{name}}}", value)
        path = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
        env = {**os.environ, "CUDA_VISIBLE_DEVICES": str(gpu), "PYTHONPATH": path,
               "PYTHONUNBUFFERED": "1", "HF_HUB_OFFLINE": "1"}  # fmt: skip
        line = f'python() {{ "{sys.executable}" "$@"; }}; {command}'
        with (folder / "log").open("ab") as log:
            process = subprocess.Popen(["bash", "-c", line], cwd=ROOT, env=env, stdin=subprocess.DEVNULL,
                                       stdout=log, stderr=log, start_new_session=True)  # fmt: skip
        placed = PlacedPart(part, gpu, now, until)
        self.running.append(RunningPart(placed, process))
        print(f"{time.strftime('%H:%M:%S')} {part.name} begins on GPU {gpu}", flush=True)

    def _collect(self) -> None:
        """Note the parts that have ended, and end those whose time is up."""
        for one in list(self.running):
            placed = one.placed
            late = one.process.poll() is None and time.monotonic() >= placed.until
            if late:
                _end(one.process)
            if one.process.poll() is None:
                continue
            self.running.remove(one)
            seconds, code = (
                round(time.monotonic() - placed.began, 1),
                None if late else one.process.returncode,
            )
            self.done[placed.part.name] = {"gpu": placed.gpu, "seconds": seconds, "code": code}
            print(f"{time.strftime('%H:%M:%S')} {placed.part.name} ended: {code}", flush=True)
            self._write()

    def _write(self) -> None:
        """Both files, each in one step."""
        for name, text in (("gpu.json", json.dumps(self.done, indent=1) + "\n"), ("gpu.md", self.table())):
            draft = self.out / f".{name}"
            draft.write_text(text, "utf-8")
            draft.replace(self.out / name)


def done_before(out: Path) -> dict[str, dict[str, Any]]:
    """What an earlier session left done in a folder."""
    file = out / "gpu.json"
    earlier: dict[str, dict[str, Any]] = json.loads(file.read_text("utf-8")) if file.exists() else {}
    return {name: one for name, one in earlier.items() if one["code"] == 0}


def _end(process: subprocess.Popen[bytes]) -> None:
    """End a part and all that it started."""
    for sent, seconds in ((signal.SIGTERM, GRACE), (signal.SIGKILL, None)):
        with suppress(ProcessLookupError):
            os.killpg(process.pid, sent)
        with suppress(subprocess.TimeoutExpired):
            process.wait(seconds)
            return
