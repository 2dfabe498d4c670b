"""`manners serve`, forked from a process that has imported it and compiled the tags: most of a start's processor time.

For tests that kill a gateway and start it again and again. What is forked has neither threads nor an event loop; from
the command line on everything is the gateway's own. Other tests start the command itself.
"""

import asyncio
import multiprocessing
import os
import signal
import sys
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerProcess
from pathlib import Path

CONTEXT = multiprocessing.get_context("forkserver")
CONTEXT.set_forkserver_preload(["tests.promotion.imported"])


class Forked:
    """What tests use of an asyncio subprocess."""

    def __init__(
        self, process: ForkServerProcess, stdout: asyncio.StreamReader, pipe: asyncio.ReadTransport
    ) -> None:
        self._process = process
        self._pipe = pipe
        self.stdout = stdout

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
        self._pipe.close()


async def fork(config: Path, environment: dict[str, str], log: Path) -> Forked:
    """Begin to start one: what it prints can be read, and what it logs is in a file."""
    reads, writes = CONTEXT.Pipe(duplex=False)
    process = CONTEXT.Process(target=_serve, args=(config, environment, log, writes))
    await asyncio.to_thread(process.start)  # the first time it waits for all that is imported
    writes.close()
    reader = asyncio.StreamReader()
    pipe, _ = await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(os.dup(reads.fileno()), "rb")
    )
    reads.close()
    return Forked(process, reader, pipe)


def _serve(config: Path, environment: dict[str, str], log: Path, prints: Connection) -> None:
    """The command in this process, which was forked."""
    os.environ.clear()
    os.environ.update(environment)
    with log.open("wb") as file:
        os.dup2(file.fileno(), 2)
    os.dup2(prints.fileno(), 1)
    prints.close()
    sys.stdout, sys.stderr = os.fdopen(1, "w", closefd=False), os.fdopen(2, "w", 1, closefd=False)
    from app.__main__ import main

    sys.exit(main(["serve", "--config", str(config)]))
