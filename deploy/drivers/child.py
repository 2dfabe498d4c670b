"""A child process that cannot outlive this process: started, its output read, and waited for.

The child inherits two pipe ends: no listening socket, secret or terminal. Its session is its own, so that a Ctrl-C for
the gateway, which drains first, does not stop the engine. Its own children are in its process group and end with it.
"""

import asyncio
import os
import signal
import socket
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

import msgspec

from deploy.core.tasks import spawn as spawn_task
from deploy.engine.log import LogFile, log_output
from deploy.engine.supervised import RunEnd

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
    """A running child as an `EngineRun`, and this process's ends of its pipes. It reports its address once it serves.

    `status` is its server's exit status, if reported.
    """

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

    def argv(self) -> tuple[str, ...]:
        """The command line from the kernel; () if it is not available, or the child has ended."""
        try:
            words = Path(f"/proc/{self.pid}/cmdline").read_bytes().split(b"\0")
        except OSError:
            return ()
        return tuple(word.decode("utf-8", "replace") for word in words[:-1])

    async def reported(self) -> ChildReport:
        """Wait for the child's report."""
        # Shielded: a caller's timeout must not cancel a future that others await.
        return await asyncio.shield(self.report)

    async def address(self) -> str | None:
        return (await self.reported()).url

    def up(self) -> None:
        """From now on its output may quote requests."""
        self.log.requests_flow = True

    async def wait(self) -> RunEnd:
        status = await self.exit_status()
        report = self.report.result() if self.report.done() else ChildReport()
        if report.error is not None:
            return RunEnd(f"refused to start: {report.error}", refused=True)
        how = f"was killed by signal {-status}" if status < 0 else f"exited with status {status}"
        return RunEnd(f"{how} while {'serving' if self.log.requests_flow else 'loading'}")

    async def exit_status(self) -> int:
        """Wait for the end of it and its children; the exit status, -N for signal N."""
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


C = TypeVar("C", bound=Child)


async def spawn(
    program: Sequence[str],
    arguments: Sequence[str],
    log: LogFile,
    environment: Mapping[str, str],
    kind: type[C],
) -> C:
    """Start a program of ours that takes `--life FD` and `--report FD`. Raises OSError; nothing is left behind."""
    with ExitStack() as childs, ExitStack() as ours:
        ours.callback(log.close)
        life_read, life = os.pipe()
        childs.callback(os.close, life_read)
        ours.callback(os.close, life)  # a cancelled spawn, too: this kills a process that was started
        report, childs_report = socket.socketpair()
        childs.callback(childs_report.close)
        ours.callback(report.close)
        fds = (life_read, childs_report.fileno())
        process = await asyncio.create_subprocess_exec(
            *(*program, "--life", str(fds[0]), "--report", str(fds[1]), *arguments),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            env=dict(environment),
            pass_fds=fds,
            start_new_session=True,
        )
        ours.pop_all()
    child = kind(process, log, life, asyncio.get_running_loop().create_future())
    assert process.stdout is not None
    child.readers += [read_report(report, child), spawn_task(log_output(process.stdout, log), "child_output")]
    return child


def read_report(report: socket.socket, child: Child) -> asyncio.Task[None]:
    """Read a child's report in the background, and close its socket then."""
    report.setblocking(False)
    reader = spawn_task(_read_report(report, child), "child_report")
    reader.add_done_callback(lambda _: report.close())
    return reader


async def _read_report(report: socket.socket, child: Child) -> None:
    held = bytearray()
    said = await _next_line(report, held)
    # One that serves already may receive requests, whose text must not reach the log.
    child.log.requests_flow = said.url is not None
    if not child.report.done():
        child.report.set_result(said)
    if said.pid is not None:
        child.status = (await _next_line(report, held)).status
    if child.status is None and said.url is None and said.error is None:
        # The keeper was killed alone, maybe before it reported. `process.wait` would wait for those it kept: they have
        # its output open.
        child.kill_group()


async def _next_line(report: socket.socket, held: bytearray) -> ChildReport:
    """The next line of a report, without a transport; an empty report for the end, and for a line that is none.

    A transport of uvloop that was made from a pipe closes its descriptor twice. Between the two, another thread may open a
    file under the same number; losing it ends in a wrong file, or in libuv's abort() of the whole gateway.
    """
    loop = asyncio.get_running_loop()
    while b"\n" not in held and len(held) < REPORT_BYTES and (data := await loop.sock_recv(report, 4096)):
        held += data
    line, _, held[:] = held.partition(b"\n")
    try:
        return msgspec.json.decode(line, type=ChildReport)
    except (ValueError, RecursionError, msgspec.MsgspecError):
        return ChildReport()
