"""One container as an `EngineRun`: watched until it ends, with its log saved, and removed after a stop."""

import asyncio
import threading
import time
from datetime import UTC, datetime
from pathlib import Path

from deploy.core.errors import DockerError
from deploy.core.tasks import spawn
from deploy.drivers.container import NETWORK, PORT
from deploy.drivers.docker_client import Docker, Json
from deploy.engine.log import LogFile
from deploy.engine.supervised import RunEnd

LOOK_SECONDS = 0.5
AWAY_SECONDS = 30.0
"""How long to wait for an unresponsive Docker daemon while its container is being stopped."""


class ContainerRun:
    """A running container; `seen` is Docker's inspection of it. The output of an `adopted` one may quote requests."""

    def __init__(self, docker: Docker, seen: Json, log_path: Path, *, adopted: bool) -> None:
        self._docker = docker
        self._seen = seen
        self._id = str(seen["Id"])
        self._log_path = log_path
        self._up_at: float | None = 0.0 if adopted else None
        self._ending_at: float | None = None
        self._fault: str | None = None  # why it was killed
        self._asked: set[asyncio.Task[None]] = set()

    @property
    def pid(self) -> int | None:
        return int(self._seen["State"]["Pid"]) or None

    async def address(self) -> str | None:
        network = self._seen["NetworkSettings"]["Networks"].get(NETWORK) or {}
        where = network.get("IPAddress")
        if not where and self._seen["State"]["Running"]:  # it would neither be ready nor end
            self._fault = f"has no address in the network {NETWORK}"
            self.kill()
        return f"http://{where}:{PORT}" if where else None

    def up(self) -> None:
        if self._up_at is None:
            self._up_at = datetime.now(UTC).timestamp()  # wall-clock time, as in Docker's log timestamps

    async def start_log(self) -> str:
        """Its log from before it served; nothing for an adopted container. Raises DockerError."""
        if self._up_at == 0.0:
            return ""
        return (await self._docker.logs(self._id, until=self._up_at)).decode("utf-8", "replace")

    def terminate(self) -> None:
        self._ending_at = time.monotonic()
        task = spawn(self._signal("SIGTERM"), "docker_signal")
        self._asked.add(task)
        task.add_done_callback(self._asked.discard)

    async def _signal(self, signal: str) -> None:
        try:
            await self._docker.signal_async(self._id, signal)
        except DockerError:
            return  # SIGKILL follows after the grace period, and `wait` knows when to give up

    def kill(self) -> None:
        self._ending_at = self._ending_at or time.monotonic()
        # On a thread of its own: neither the event loop nor a watchdog may block on the daemon.
        threading.Thread(target=self._kill, name="docker kill", daemon=True).start()

    def _kill(self) -> None:
        end = time.monotonic() + AWAY_SECONDS
        while time.monotonic() < end:
            try:
                return self._docker.signal(self._id, "SIGKILL")
            except DockerError:
                time.sleep(LOOK_SECONDS)

    async def wait(self) -> RunEnd:
        while True:
            try:
                seen = await self._docker.inspect(self._id)
            except DockerError as error:
                if self._ending_at is not None and time.monotonic() > self._ending_at + AWAY_SECONDS:
                    return RunEnd(f"was told to end, and whether it did is not known: {error}")
            else:
                if seen is None:
                    return RunEnd("its container was removed")
                self._seen = seen
                if not seen["State"]["Running"]:
                    return await self._bury(seen)
            await asyncio.sleep(LOOK_SECONDS)

    async def _bury(self, seen: Json) -> RunEnd:
        """Save the log; remove a container after a stop, and keep any other for inspection."""
        try:
            await self._keep_log()
            if self._ending_at is not None:
                await self._docker.remove(self._id)
        except (DockerError, OSError) as error:
            return RunEnd(f"{self._fault or _how(seen)}; its log is lost: {error}")
        return RunEnd(self._fault or _how(seen))

    async def _keep_log(self) -> None:
        log = LogFile(self._log_path)
        try:
            log.note(f"container {self._id}")
            if self._up_at != 0.0:
                await asyncio.to_thread(_write, log, await self._docker.logs(self._id, until=self._up_at))
            if self._up_at is not None:
                log.requests_flow = True
                later = await self._docker.logs(self._id, since=self._up_at or None)
                await asyncio.to_thread(_write, log, later)
        finally:
            log.close()

    def close(self) -> None:
        for task in self._asked:
            task.cancel()


def _write(log: LogFile, output: bytes) -> None:
    """Megabytes, where its lines are long."""
    for line in output.splitlines():
        log.write(line)


def _how(seen: Json) -> str:
    state = seen["State"]
    if state.get("OOMKilled"):
        return "its container ran out of the memory that it was allowed"
    code = int(state["ExitCode"])
    how = f"was killed by signal {code - 128}" if code > 128 else f"exited with status {code}"
    return f"its container {how}" + (f": {state['Error']}" if state.get("Error") else "")
