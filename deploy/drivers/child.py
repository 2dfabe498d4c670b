"""A child process that cannot outlive this process: started, its output read, and waited for.

The child inherits two pipe ends and nothing else: no listening socket (a restarted gateway could
not bind its port), no secret, no terminal. It has a session of its own, so that a Ctrl-C for the gateway,
which drains first, does not stop the engine during its last streams.
"""

import asyncio
import json
import os
import signal
import sys
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from deploy.core.engine_http import parse_json
from deploy.core.lines import LineSplitter
from deploy.core.tasks import spawn as spawn_task
from deploy.engine.log import LogFile

# The environment variables that an engine inherits: paths and compute settings. An allow-list, because
# the names of secrets cannot be known; MANNERS_* is never inherited.
_KEPT = frozenset({"PATH", "HOME", "LANG", "TZ", "TMPDIR", "LD_LIBRARY_PATH", "VIRTUAL_ENV"})
_KEPT_PREFIXES = ("LC_", "PYTHON", "OMP_", "GGML_", "CUDA_", "NVIDIA_", "GOMP_", "KMP_")


def child_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """The environment for a child, with this checkout or installation importable."""
    kept = {
        name: value for name, value in environ.items() if name in _KEPT or name.startswith(_KEPT_PREFIXES)
    }
    root = str(Path(__file__).resolve().parents[2])
    paths = [root, *filter(None, [kept.get("PYTHONPATH")])]
    return kept | {"PYTHONPATH": os.pathsep.join(paths), "PYTHONUNBUFFERED": "1"}


REPORT_BYTES = 64 << 10
"""The longest report of a child."""


@dataclass(frozen=True, slots=True)
class StartupReport:
    """The child's report: its address, or why it cannot start. Neither: it ended without a report."""

    url: str | None = None
    error: str | None = None


@dataclass(slots=True)
class Child:
    """A running child, and this process's ends of its pipes."""

    process: asyncio.subprocess.Process
    log: LogFile
    life: int
    report: asyncio.Future[StartupReport]
    readers: list[asyncio.Task[None]] = field(default_factory=list)

    @property
    def pid(self) -> int:
        return self.process.pid

    def terminate(self) -> None:
        """Send SIGTERM; no error if it has ended."""
        if self.process.returncode is None:
            self.process.terminate()

    def kill(self) -> None:
        """Send SIGKILL; no error if it has ended. May be called from any thread, as the event loop may be stuck."""
        if self.process.returncode is None:
            with suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)

    async def wait(self) -> int:
        """Wait for its end and the end of its output; returns the exit status, -N for signal N."""
        status = await self.process.wait()
        # Bounded: a helper process of the child (a debugger, after a crash) may hold the pipe open.
        await asyncio.wait(self.readers, timeout=2.0)
        return status

    def close(self) -> None:
        """Close this process's pipe ends. A child that still runs is killed by this."""
        if self.life >= 0:
            os.close(self.life)
            self.life = -1
        for reader in self.readers:
            reader.cancel()
        self.log.close()


async def spawn(config: Mapping[str, Any], log: LogFile, environ: Mapping[str, str]) -> Child:
    """Start `deploy.drivers.llama_child`.

    Raises:
        OSError: the process or its pipes could not be made; nothing is left behind.
    """
    life_read, life = os.pipe()
    try:
        report_read, report = os.pipe()
    except OSError:
        os.close(life_read)
        os.close(life)
        raise
    text = json.dumps(config)
    command = (sys.executable, "-m", "deploy.drivers.llama_child", "--config", text)
    fds = ("--life", str(life_read), "--report", str(report))
    try:
        process = await asyncio.create_subprocess_exec(
            *command,
            *fds,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            env=child_environment(environ),
            pass_fds=(life_read, report),
            start_new_session=True,
        )
    except BaseException:  # also a cancelled spawn: closing `life` kills a process that was started
        os.close(life)
        os.close(report_read)
        raise
    finally:
        os.close(life_read)
        os.close(report)
    log.note(text)
    child = Child(process, log, life, asyncio.get_running_loop().create_future())
    child.readers.append(spawn_task(_read_report(report_read, child), "child_report"))
    child.readers.append(spawn_task(_read_output(process, log), "child_output"))
    return child


async def _read_report(fd: int, child: Child) -> None:
    reader = asyncio.StreamReader(limit=REPORT_BYTES)
    protocol = asyncio.StreamReaderProtocol(reader)
    pipe = os.fdopen(fd, "rb", buffering=0)
    transport, _ = await asyncio.get_running_loop().connect_read_pipe(lambda: protocol, pipe)
    try:
        line = await reader.readline()
    except ValueError:  # longer than the limit: not a report
        line = b""
    finally:
        transport.close()
    report = _parse_report(line)
    # From now on the engine may receive requests, whose text must not reach the log.
    child.log.requests_flow = report.url is not None
    if not child.report.done():
        child.report.set_result(report)


def _parse_report(line: bytes) -> StartupReport:
    try:
        said = parse_json(line)
    except ValueError:
        return StartupReport()
    said = said if isinstance(said, dict) else {}
    url, error = said.get("url"), said.get("error")
    return StartupReport(
        url=url if isinstance(url, str) else None, error=error if isinstance(error, str) else None
    )


async def _read_output(process: asyncio.subprocess.Process, log: LogFile) -> None:
    assert process.stdout is not None
    splitter = LineSplitter(limit=1 << 16)
    while data := await process.stdout.read(1 << 16):
        for line in splitter.feed(data):
            log.write(line)
    for line in splitter.close():
        log.write(line)
