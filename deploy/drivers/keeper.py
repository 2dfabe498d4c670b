"""Runs an engine's server so that no process of it can outlive the gateway.

    python -I keeper.py --life FD --report FD -- COMMAND ...

    keeper, the leader of the engine's group
     +- guard, in a group of its own
         +- server and its workers, in the keeper's group; and what has left it for a session of its own

A server may leave workers behind, each with gigabytes of memory: when it ends, the keeper kills the rest of the group,
itself included. When the gateway ends, the kernel does (see `die_with_parent`). Then, or when the server ends, the guard kills
every descendant: orphans become its children (PR_SET_CHILD_SUBREAPER). SIGTERM is for the server alone, which tells its
workers itself.

`--report` gets lines of JSON: `{"pid": …}` once the server runs, or `{"error": …}` if it cannot be executed, and at
the server's end `{"status": …}`, negative for a signal. Standard library only: it runs isolated, in the engine's
environment.
"""

import argparse
import contextlib
import ctypes
import fcntl
import json
import os
import select
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any

EX_CONFIG = 78
"""Exit status for a configuration that cannot work (sysexits.h)."""
PR_SET_CHILD_SUBREAPER = 36
"""prctl(2)."""
KILL_SECONDS = 10
"""How long the guard waits for the end of what it has killed. A process in a driver's call may not end at all."""
FIX = "install the engine there, or correct its `command` in the configuration"


def die_with_parent(life: int) -> None:
    """Have the kernel kill this process's group at end of file on `life`, the read end of a pipe.

    A waiting thread would not do: loading a model may hold the GIL for minutes. PR_SET_PDEATHSIG would not do: it fires when
    the thread that spawned us ends.
    """
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
    fcntl.fcntl(life, fcntl.F_SETOWN, -os.getpgrp())
    fcntl.fcntl(life, fcntl.F_SETSIG, signal.SIGKILL)
    fcntl.fcntl(life, fcntl.F_SETFL, fcntl.fcntl(life, fcntl.F_GETFL) | os.O_ASYNC | os.O_NONBLOCK)
    # If the parent ended before the line above, no signal will come.
    if select.select([life], [], [], 0)[0]:
        os._exit(1)


def tell_parent(report: int, message: dict[str, Any]) -> None:
    """Write one line of the report; a parent that has gone is no error."""
    with contextlib.suppress(BrokenPipeError):
        os.write(report, json.dumps(message).encode() + b"\n")


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="keeper")
    for name in ("--life", "--report"):
        parser.add_argument(name, type=int, required=True)
    parser.add_argument("command", nargs="+")
    given = parser.parse_args(argv)
    die_with_parent(given.life)
    guard = 0

    def terminate(number: int, frame: FrameType | None) -> None:
        if guard:
            os.kill(guard, signal.SIGTERM)
        else:  # nothing has been started
            _kill_group()

    signal.signal(signal.SIGTERM, terminate)
    keepers_end, ours = os.pipe()
    guard = os.fork()
    if not guard:
        os.close(ours)
        os._exit(_guard(given.command, given.report, keepers_end))
    os.close(given.report)  # its end tells the gateway that the guard has ended, too
    if os.waitstatus_to_exitcode(os.waitpid(guard, 0)[1]) == EX_CONFIG:
        return EX_CONFIG
    _kill_group()
    return 0


def _guard(command: list[str], report: int, keepers_end: int) -> int:
    """Run the server in the keeper's group; at its end, or the keeper's, kill all that descends from it."""
    group = os.getpgrp()
    os.setpgid(0, 0)
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    server: subprocess.Popen[bytes] | None = None

    def terminate(number: int, frame: FrameType | None) -> None:
        if server is None:
            os._exit(0)  # the keeper kills the group
        os.kill(server.pid, signal.SIGTERM)

    signal.signal(signal.SIGTERM, terminate)
    try:
        server = subprocess.Popen(command, stdin=subprocess.DEVNULL, process_group=group)
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else error
        tell_parent(report, {"error": f"{command[0]}: {why}; {FIX}"})
        return EX_CONFIG
    tell_parent(report, {"pid": server.pid})
    threading.Thread(target=_kill_at_end_of, args=(keepers_end, server.pid), daemon=True).start()
    while (ended := os.waitpid(-1, 0))[0] != server.pid:
        pass  # an orphan of the server
    tell_parent(report, {"status": os.waitstatus_to_exitcode(ended[1])})
    _kill_descendants()
    return 0


def _kill_descendants() -> None:
    """Kill this process's children until there are none: the children of each become its own."""
    signal.alarm(KILL_SECONDS)
    with contextlib.suppress(ChildProcessError):
        while True:
            for pid in _children():
                os.kill(pid, signal.SIGKILL)
            os.waitpid(-1, 0)


def _children() -> Iterator[int]:
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):  # it has ended meanwhile
            if int(path.read_bytes().rpartition(b")")[2].split()[1]) == os.getpid():
                yield int(path.parent.name)


def _kill_at_end_of(life: int, server: int) -> None:
    select.select([life], [], [])
    os.kill(server, signal.SIGKILL)


def _kill_group() -> None:
    os.killpg(0, signal.SIGKILL)


if __name__ == "__main__":
    sys.exit(main())
