"""`manners serve`, forked from a process that has imported it and compiled the tags: most of a start's processor time.

For tests that start many gateways. What is forked has neither threads nor an event loop; from
the command line on everything is the gateway's own. Other tests start the command itself.
"""

import asyncio
import multiprocessing
import os
import signal
import sys
from dataclasses import dataclass
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerProcess
from pathlib import Path

CONTEXT = multiprocessing.get_context("forkserver")
CONTEXT.set_forkserver_preload(["tests.promotion.imported"])


class Forked:
    """What tests use of an asyncio subprocess."""

    def __init__(self, process: ForkServerProcess, stdout: "_Output", stderr: "_Output | None") -> None:
        self._process = process
        self._outputs = [output for output in (stdout, stderr) if output is not None]
        self.stdout = stdout.reader
        self.stderr = None if stderr is None else stderr.reader

    @property
    def pid(self) -> int:
        """The gateway's."""
        assert self._process.pid is not None
        return self._process.pid

    @property
    def returncode(self) -> int | None:
        """None while it runs."""
        return self._process.exitcode

    def send_signal(self, number: int) -> None:
        """To the gateway alone."""
        os.kill(self.pid, number)

    def kill(self) -> None:
        """Without a word."""
        self.send_signal(signal.SIGKILL)

    def terminate(self) -> None:
        """In good order."""
        self.send_signal(signal.SIGTERM)

    async def wait(self) -> None:
        """Until it has ended."""
        await asyncio.to_thread(self._process.join)
        for output in self._outputs:
            output.pipe.close()

    async def communicate(self) -> tuple[bytes, bytes]:
        """What it still prints, on stdout and on stderr, until it has ended."""
        out, err = await asyncio.gather(*(output.reader.read() for output in self._outputs))
        await self.wait()
        return out, err


@dataclass
class _Output:
    """What it prints, or what it logs, as a pipe of this process."""

    reader: asyncio.StreamReader
    pipe: asyncio.ReadTransport


async def _read(end: Connection) -> _Output:
    """The output whose end this is; it is closed here."""
    reader = asyncio.StreamReader()
    pipe, _ = await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(os.dup(end.fileno()), "rb")
    )
    end.close()
    return _Output(reader, pipe)


async def fork(config: Path, environment: dict[str, str], log: Path | None = None) -> Forked:
    """Begin to start one: what it prints can be read, and what it logs is in a file; without one it can be read, too."""
    reads, prints = CONTEXT.Pipe(duplex=False)
    reads_log, logs = CONTEXT.Pipe(duplex=False) if log is None else (None, log)
    process = CONTEXT.Process(target=_serve, args=(config, environment, prints, logs))
    await asyncio.to_thread(process.start)  # the first time it waits for all that is imported
    prints.close()
    if isinstance(logs, Connection):
        logs.close()
    return Forked(process, await _read(reads), None if reads_log is None else await _read(reads_log))


def _serve(config: Path, environment: dict[str, str], prints: Connection, logs: Connection | Path) -> None:
    """The command in this process, which was forked."""
    os.environ.clear()
    os.environ.update(environment)
    for number, output in ((1, prints), (2, logs.open("wb") if isinstance(logs, Path) else logs)):
        os.dup2(output.fileno(), number)
        output.close()
    sys.stdout, sys.stderr = os.fdopen(1, "w", closefd=False), os.fdopen(2, "w", 1, closefd=False)
    from app.__main__ import main

    sys.exit(main(["serve", "--config", str(config)]))
