"""A child process that cannot outlive this process: started, its output read, and waited for.

The child inherits two pipe ends: no listening socket, secret or terminal. Its session is its own, so that a Ctrl-C for
the gateway, which drains first, does not stop the engine. Its own children are in its process group and end with it.
"""

import asyncio
import os
import signal
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from deploy.core.tasks import spawn as spawn_task
from deploy.engine.log import LogFile
from deploy.engine.output import log_output
from deploy.engine.run import RunEnd

# The environment variables that an engine inherits: paths and compute settings. An allow-list, because
# the names of secrets cannot be known; MANNERS_* is never inherited.
_KEPT = frozenset({"PATH", "HOME", "LANG", "TZ", "TMPDIR", "LD_LIBRARY_PATH"})
_KEPT_PREFIXES = ("LC_", "OMP_", "GGML_", "CUDA_", "NVIDIA_", "GOMP_", "KMP_")
_OUR_PYTHON = ("VIRTUAL_ENV", "PYTHON")
"""What points Python to the gateway's own environment."""


def kept_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """What any engine inherits; nothing that leads a Python in another environment to this one."""
    return {n: value for n, value in environ.items() if n in _KEPT or n.startswith(_KEPT_PREFIXES)}


def child_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """The environment for a child of our own code, with this checkout or installation importable."""
    python = {name: value for name, value in environ.items() if name.startswith(_OUR_PYTHON)}
    root = str(Path(__file__).resolve().parents[2])
    paths = [root, *filter(None, [python.get("PYTHONPATH")])]
    ours = {"PYTHONPATH": os.pathsep.join(paths), "PYTHONUNBUFFERED": "1"}
    return kept_environment(environ) | python | ours


REPORT_BYTES = 64 << 10
"""The longest line of a child's report."""
OUTPUT_SECONDS = 10.0
"""How long to wait for the end of a dead child's output. Killed workers close it once their memory is free."""


class ChildReport(msgspec.Struct, frozen=True):
    """A line of a child's report: its address, its server's process, why it cannot start, or its server's exit status."""

    url: str | None = None
    pid: int | None = None
    error: str | None = None
    status: int | None = None


@dataclass(slots=True)
class Child:
    """A running child, and this process's ends of its pipes. `status` is its server's exit status, if reported."""

    process: asyncio.subprocess.Process
    log: LogFile
    life: int
    report: asyncio.Future[ChildReport]
    readers: list[asyncio.Task[None]] = field(default_factory=list)
    status: int | None = None

    @property
    def pid(self) -> int:
        return self.process.pid

    def terminate(self) -> None:
        """Send SIGTERM; no error if it has ended."""
        if self.process.returncode is None:
            self.process.terminate()

    def kill(self) -> None:
        """Kill it and its children; no error if it has ended. May be called from any thread."""
        if self.process.returncode is None:
            self.kill_group()

    def kill_group(self) -> None:
        """Kill its children, whether it has ended or not."""
        with suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)

    async def wait(self) -> int:
        """Wait for the end of it and its children; returns the exit status, -N for signal N."""
        status = await self.process.wait()
        await asyncio.wait(self.readers, timeout=OUTPUT_SECONDS)
        return status if self.status is None else self.status

    def close(self) -> None:
        """Close this process's pipe ends. A child that still runs is killed by this."""
        if self.life >= 0:
            os.close(self.life)
            self.life = -1
        for reader in self.readers:
            reader.cancel()
        self.log.close()


async def spawn(
    program: Sequence[str], arguments: Sequence[str], log: LogFile, environment: Mapping[str, str]
) -> Child:
    """Start a program of ours that takes `--life FD` and `--report FD`. Raises OSError; nothing is left behind."""
    life_read, life = os.pipe()
    try:
        report_read, report = os.pipe()
    except OSError:
        os.close(life_read)
        os.close(life)
        raise
    fds = ("--life", str(life_read), "--report", str(report))
    try:
        process = await asyncio.create_subprocess_exec(
            *program,
            *fds,
            *arguments,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            env=dict(environment),
            pass_fds=(life_read, report),
            start_new_session=True,
        )
    except BaseException:  # also a cancelled spawn: closing `life` kills a process that was started
        os.close(life)
        os.close(report_read)
        log.close()
        raise
    finally:
        os.close(life_read)
        os.close(report)
    child = Child(process, log, life, asyncio.get_running_loop().create_future())
    child.readers.append(spawn_task(_read_report(report_read, child), "child_report"))
    assert process.stdout is not None
    child.readers.append(spawn_task(log_output(process.stdout, log), "child_output"))
    return child


async def _read_report(fd: int, child: Child) -> None:
    reader = asyncio.StreamReader(limit=REPORT_BYTES)
    protocol = asyncio.StreamReaderProtocol(reader)
    pipe = os.fdopen(fd, "rb", buffering=0)
    transport, _ = await asyncio.get_running_loop().connect_read_pipe(lambda: protocol, pipe)
    try:
        report = await _read_line(reader)
        # One that serves already may receive requests, whose text must not reach the log.
        child.log.requests_flow = report.url is not None
        if not child.report.done():
            child.report.set_result(report)
        if report.pid is not None:
            child.status = (await _read_line(reader)).status
        if child.status is None and report.url is None and report.error is None:
            # The keeper was killed alone, maybe before it reported. `process.wait` would wait for those it kept: they have
            # its output open.
            child.kill_group()
    finally:
        transport.close()


async def _read_line(reader: asyncio.StreamReader) -> ChildReport:
    """One line of a report; an empty report for a line that is none."""
    try:
        return msgspec.json.decode(await reader.readline(), type=ChildReport)
    except (ValueError, RecursionError, msgspec.MsgspecError):  # ValueError: longer than the limit
        return ChildReport()


class ChildRun:
    """A child process as an `EngineRun`; it reports its address once it serves."""

    def __init__(self, child: Child) -> None:
        self._child = child

    @property
    def pid(self) -> int:
        return self._child.pid

    def argv(self) -> tuple[str, ...]:
        """The command line from the kernel; () if it is not available, or the child has ended."""
        try:
            words = Path(f"/proc/{self.pid}/cmdline").read_bytes().split(b"\0")
        except OSError:
            return ()
        return tuple(word.decode("utf-8", "replace") for word in words[:-1])

    async def report(self) -> ChildReport:
        """Wait for the child's report."""
        # Shielded: a caller's timeout must not cancel a future that others await.
        return await asyncio.shield(self._child.report)

    async def address(self) -> str | None:
        return (await self.report()).url

    def up(self) -> None:
        """From now on its output may quote requests."""
        self._child.log.requests_flow = True

    def terminate(self) -> None:
        self._child.terminate()

    def kill(self) -> None:
        self._child.kill()

    async def wait(self) -> RunEnd:
        status = await self._child.wait()
        report = self._child.report.result() if self._child.report.done() else ChildReport()
        if report.error is not None:
            return RunEnd(f"refused to start: {report.error}", refused=True)
        how = f"was killed by signal {-status}" if status < 0 else f"exited with status {status}"
        return RunEnd(f"{how} while {'serving' if self._child.log.requests_flow else 'loading'}")

    def close(self) -> None:
        self._child.close()
