"""The `process` driver: runs an engine's server from its own virtual environment under `deploy.drivers.keeper`.

The engine is ready only if one of its own processes listens on its loopback port.
"""

import asyncio
import os
import socket
import sys
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address, ip_address
from pathlib import Path
from typing import Any, Final, Unpack

from deploy.drivers import keeper
from deploy.drivers.child import Child, kept_environment, spawn
from deploy.drivers.docker import LOAD_SECONDS, STOP_SECONDS
from deploy.engine.dialect import Launch
from deploy.engine.dialects import SILENT, server_args
from deploy.engine.spec import EngineSpec
from deploy.engine.supervised import Engine, EngineRun, RunEnd, Supervision
from deploy.engine.weights import find_model

HOST: Final = "127.0.0.1"
LOOK_SECONDS: Final = 0.1
_NO_GPU: Final = {"CUDA_VISIBLE_DEVICES": ""}
_LISTENING: Final = "0A"


class ProcessEngine(Engine):
    """An `Engine` whose server is installed in another environment. Raises FlagError."""

    start_timeout_s = LOAD_SECONDS
    stop_grace_s = STOP_SECONDS

    def __init__(
        self,
        spec: EngineSpec,
        *,
        state_dir: Path,
        environ: Mapping[str, str] | None = None,
        **how: Unpack[Supervision],
    ) -> None:
        super().__init__(spec, state_dir=state_dir, **how)
        self._environ = os.environ if environ is None else environ
        argv(spec, "", 0)

    def _prepare(self) -> None:
        find_model(self._spec)

    async def _spawn(self) -> EngineRun:
        port = _free_port()
        words = argv(self._spec, str(find_model(self._spec)), port)
        log = self._begin_log()
        log.note(" ".join(words))
        program = (sys.executable, "-I", keeper.__file__)
        env = environment(self._spec, self._environ)
        run = await spawn(program, ("--", *words), log, env, _ServerRun)
        run.port = port
        return run

    async def describe(self) -> Mapping[str, Any]:
        """Adds the server's command line and what it loads; see `Engine.describe`."""
        running = self._run
        words = running.argv() if isinstance(running, _ServerRun) else ()
        return {**await super().describe(), "argv": words, "model_file": str(find_model(self._spec))}


def argv(spec: EngineSpec, model: str, port: int) -> tuple[str, ...]:
    """The server's command line. Raises FlagError, as `server_args` does."""
    command = spec.command or ()
    launch = Launch(model=model, host=HOST, port=port, serve=command[-1] == "serve")
    return (*command, *server_args(spec, launch))


def environment(spec: EngineSpec, environ: Mapping[str, str]) -> dict[str, str]:
    """The server's environment: our paths and compute settings without our secrets, then the spec's `env`."""
    kept = kept_environment(environ)
    folder = os.path.dirname((spec.command or ("",))[0])
    if folder:  # as in an activated environment: compilers of kernels are found there
        kept["PATH"] = os.pathsep.join((folder, kept.get("PATH", os.defpath)))
    ours = {**SILENT, "PYTHONUNBUFFERED": "1", "VLLM_HOST_IP": HOST}
    return kept | ours | (_NO_GPU if spec.gpu == "none" else {}) | dict(spec.env or ())


@dataclass
class _ServerRun(Child):
    """A server under its keeper, whose process id is that of the whole group."""

    port: int = 0
    fault: RunEnd | None = None

    def argv(self) -> tuple[str, ...]:
        words = super().argv()
        return words[words.index("--") + 1 :] if "--" in words else ()

    async def address(self) -> str | None:
        if (await self.reported()).pid is None:
            return None
        while not await asyncio.to_thread(self._is_settled):
            await asyncio.sleep(LOOK_SECONDS)
        if self.fault is not None:
            self.kill()
            return None
        return f"http://{HOST}:{self.port}"

    def _is_settled(self) -> bool:
        """Whether the port is listened on; `fault` if not by the server, or not on loopback only."""
        listening = listeners(self.port)
        if not listening:
            return False
        own = sockets_of(self.pid)
        near = {inode for address, inode in listening if address.is_loopback or address.is_unspecified}
        if any(inode in own and not address.is_loopback for address, inode in listening):
            why = "listens on more than the loopback address, and has no key; its `args` must take {host}"
            self.fault = RunEnd(why, refused=True)
        elif not near <= own:
            self.fault = RunEnd(f"its port {self.port} was taken by another process")
        return bool(near) or self.fault is not None

    async def wait(self) -> RunEnd:
        end = await super().wait()
        return self.fault or end


def _free_port() -> int:
    with socket.create_server((HOST, 0)) as found:
        return int(found.getsockname()[1])


def listeners(port: int) -> list[tuple[IPv4Address | IPv6Address, str]]:
    """The listeners on a TCP port: addresses, and sockets by inode."""
    lines = Path("/proc/net/tcp").read_text().splitlines()[1:]
    with suppress(OSError):  # a host without IPv6
        lines += Path("/proc/net/tcp6").read_text().splitlines()[1:]
    rows = [line.split() for line in lines]
    here = [row for row in rows if row[3] == _LISTENING and row[1].endswith(f":{port:04X}")]
    return [(kernel_address(row[1].partition(":")[0]), row[9]) for row in here]


def kernel_address(text: str) -> IPv4Address | IPv6Address:
    """An address of /proc/net/tcp or tcp6: words in this host's byte order. One of IPv4 in IPv6 is that of IPv4."""
    words = [int(text[at : at + 8], 16).to_bytes(4, sys.byteorder) for at in range(0, len(text), 8)]
    address = ip_address(b"".join(words))
    return (address.ipv4_mapped if isinstance(address, IPv6Address) else None) or address


def sockets_of(group: int) -> set[str]:
    """The sockets that the processes of a group hold, by inode."""
    return {inode for pid in members(group) for inode in _sockets(pid)}


def members(group: int) -> Iterable[Path]:
    """The processes of a group, as their folders in /proc."""
    for path in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it has ended meanwhile
            # bytes: a process may have any name
            if int((path / "stat").read_bytes().rpartition(b")")[2].split()[2]) == group:
                yield path


def _sockets(process: Path) -> Iterable[str]:
    with suppress(OSError):
        for fd in (process / "fd").iterdir():
            with suppress(OSError):
                target = os.readlink(fd)
                if target.startswith("socket:["):
                    yield target[8:-1]
