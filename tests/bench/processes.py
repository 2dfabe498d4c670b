"""Processes of the bench: started in their own session, watched through /proc, ended by their id."""

import asyncio
import contextlib
import os
import signal
import socket
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import aiohttp

STOP_SECONDS = 8.0
_SCHED_CLOCK = 2  # what clock_getcpuclockid(3) makes a clock id with


def listens(port: int) -> bool:
    """Whether something accepts connections there."""
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 0.5):
        return True
    return False


class Process:
    """A child with its output in a file."""

    def __init__(self, command: Sequence[str], log: Path, env: Mapping[str, str] | None = None) -> None:
        self._log = log
        with log.open("wb") as out:
            self._child = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                env={**os.environ, **(env or {})},
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._child.pid

    @property
    def died(self) -> str | None:
        """How it ended, with the last line it wrote; None while it runs."""
        code = self._child.poll()
        return None if code is None else f"exited with {code}: {self.last_line()}"

    async def until_ready(self, url: str, seconds: float) -> str | None:
        """Wait until `url` answers 200. Why it did not, in words; None: it is ready."""
        async with aiohttp.ClientSession() as client:
            for _ in range(int(seconds / 0.1)):
                if self.died:
                    return self.died
                with contextlib.suppress(aiohttp.ClientError):
                    async with client.get(url) as response:
                        if response.status == 200:
                            return None
                await asyncio.sleep(0.1)
        return f"is not ready after {seconds:.0f} s"

    def last_line(self) -> str:
        """The last line of its output that says something."""
        lines = self._log.read_text(errors="replace").strip().splitlines()
        return lines[-1][-300:] if lines else "it wrote nothing"

    def cpu_seconds(self) -> float:
        """User and system time of the process and everything below it."""
        return cpu_seconds(self._child.pid)

    def rss_mib(self) -> float:
        """Resident memory of the process and everything below it."""
        page = os.sysconf("SC_PAGE_SIZE")
        pages = 0
        for pid in tree(self._child.pid):
            with contextlib.suppress(OSError):
                pages += int(Path(f"/proc/{pid}/statm").read_text().split()[1])
        return pages * page / 2**20

    def stop(self) -> None:
        """SIGTERM, then SIGKILL, to its session (it may have left workers behind)."""
        for number in (signal.SIGTERM, signal.SIGKILL):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._child.pid, number)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._child.wait(STOP_SECONDS)


def cpu_seconds(pid: int) -> float:
    """User and system time of a process and everything below it, exact to the nanosecond."""
    return sum(_cpu_nanoseconds(child) for child in tree(pid)) / 1e9


def tree(pid: int) -> list[int]:
    """A process and its descendants."""
    found = [pid]
    with contextlib.suppress(OSError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            for child in (task / "children").read_text().split():
                found += tree(int(child))
    return found


def _cpu_nanoseconds(pid: int) -> int:
    """By the kernel's CPU clock of that process: threads that have ended count, too."""
    with contextlib.suppress(OSError):
        return time.clock_gettime_ns((~pid << 3) | _SCHED_CLOCK)
    return 0
