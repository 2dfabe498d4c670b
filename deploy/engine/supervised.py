"""An engine, whichever driver runs it: a process, a container, or an address.

Every change of its state creates a new frozen `EngineState`, passes it to the `on_change` callback, and wakes the callers of
`changed()`.

`deploy.engine.supervisor` decides; this shell makes the events and runs the commands. Each run has one task, which spawns,
waits for the address, probes until a token streams, waits for the end, and reports that end exactly once. Only `leave()`
cancels that task; a signal ends a run, and then the task ends by itself.
"""

import asyncio
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, TypedDict, Unpack

from deploy.core.errors import EngineError, StartCancelled, StartFailed
from deploy.core.tasks import report, spawn
from deploy.engine.abilities import Abilities, abilities
from deploy.engine.dialects import from_start
from deploy.engine.engine import EngineState, OnChange, Phase
from deploy.engine.gpu import host_gpu
from deploy.engine.log import LogFile, log_path, start_of, tail
from deploy.engine.probe import wait_until_streams
from deploy.engine.spec import EngineSpec, spec_digest
from deploy.engine.supervisor import (
    ChildEvent,
    ChildState,
    Command,
    CommandKind,
    EventKind,
    RestartPolicy,
    step,
)
from gates.artefact.artefact import Snapshot, snapshot

_GONE = (Phase.STOPPED, Phase.FAILED)


@dataclass(frozen=True, slots=True)
class RunEnd:
    """Why a run ended; `refused`: another run with this configuration would end the same way."""

    why: str
    refused: bool = False


class EngineRun(Protocol):
    """A process or a container, from its creation to its end."""

    @property
    def pid(self) -> int | None:
        """The id of the running process on this host; None if unknown."""

    async def address(self) -> str | None:
        """Wait until it accepts connections and return its URL; None if it ends before."""
        ...

    def up(self) -> None:
        """Called once it streams: from then on its output may quote requests."""

    def terminate(self) -> None:
        """Terminate it gracefully; no error if it has ended."""

    def kill(self) -> None:
        """Kill it; no error if it has ended. Thread-safe."""

    async def wait(self) -> RunEnd:
        """Wait until it has ended."""
        ...

    def close(self) -> None:
        """Close its pipes and log file."""


class Supervision(TypedDict, total=False):
    """How an engine is kept running. `start_timeout_s` bounds a run's time to its first token, `stop_grace_s` SIGTERM to SIGKILL."""

    on_change: OnChange | None
    policy: RestartPolicy | None
    start_timeout_s: float
    stop_grace_s: float


class Engine(ABC):
    """An engine that can be started, observed and stopped; drivers make its runs. For one event loop."""

    start_timeout_s = 120.0
    stop_grace_s = 5.0

    def __init__(self, spec: EngineSpec, *, state_dir: Path, **how: Unpack[Supervision]) -> None:
        self._spec = spec
        self._state = EngineState(name=spec.name)
        self._on_change = how.get("on_change")
        self._news = asyncio.Event()  # a new state
        self._model: str | None = spec.name  # the name to request
        self._log_path = log_path(state_dir, spec.name)
        self._policy = how.get("policy") or RestartPolicy()
        self._start_timeout_s = how.get("start_timeout_s", self.start_timeout_s)
        self._stop_grace_s = how.get("stop_grace_s", self.stop_grace_s)
        self._child = ChildState()
        self._run: EngineRun | None = None
        self._url: str | None = None
        self._log: LogFile | None = None  # of the present run
        self._abilities = Abilities()
        self._weights: Snapshot | None = None  # the files as they were just before the present run
        self._kill_reason: str | None = None  # set by kill()
        self._life: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None

    @property
    def name(self) -> str:
        return self._spec.name

    @property
    def state(self) -> EngineState:
        return self._state

    @property
    def url(self) -> str | None:
        """`state.url`: the address while ready, otherwise None."""
        return self._state.url

    @abstractmethod
    def _prepare(self) -> None:
        """Check that the configuration can work, before anything is started. Raises WeightsError."""

    @abstractmethod
    async def _spawn(self) -> EngineRun:
        """Start a run. Raises OSError, EngineError: it failed and left nothing behind; StartRefused: so would another one."""

    async def describe(self) -> Mapping[str, Any]:
        """What runs now, from the process or the Docker daemon, as plain JSON values; None or () for what is unknown.

        Always: `name`, `driver`, `spec` (`spec_digest`), `url`, `pid`, `numerics`. Embedded, process: `argv`, `model_file`. Docker:
        `argv`, `image` (as pinned), `image_id`, `container`, `labels`, `mounts` ({inside: on the host}), `model_file`.
        """
        return {
            "name": self.name,
            "driver": self._spec.driver,
            "spec": spec_digest(self._spec),
            "url": self.url,
            "pid": self._run.pid if self._run is not None else None,
            "weights": self._weights,
            "numerics": from_start(self._spec, await self._start_log(), host_gpu()),
        }

    async def _start_log(self) -> str:
        """What the present run has logged before its first request."""
        if self._run is None or (self._log is not None and not self._log.is_kept):
            return ""
        return await asyncio.to_thread(start_of, self._log_path)

    def _begin_log(self) -> LogFile:
        """The log of a run that is about to be started."""
        self._log = LogFile(self._log_path)
        return self._log

    @property
    def log_path(self) -> Path:
        """The log of the present or last run; the previous one is beside it as `.log.1`."""
        return self._log_path

    async def start(self) -> EngineState:
        """Start it and return once it has streamed a token; idempotent while running. If the caller is cancelled, it is stopped.

        Raises:
            WeightsError, FlagError: the configuration cannot work; nothing was started.
            StartFailed, StartTimeout: it is `FAILED`, and may be started again.
            StartCancelled: `stop()` came first.
        """
        while self._child.phase is Phase.STOPPING:
            await self.changed(self.state)
        mine = self._child.phase in _GONE
        if mine:
            self._prepare()
            self._cancel_timer()  # of a retry
            self._kill_reason = None
            self._feed(EventKind.START)
        try:
            return await self._until_up()
        except asyncio.CancelledError:
            if mine:
                await self.stop()
            raise

    async def _until_up(self) -> EngineState:
        state = self.state
        while state.state is not Phase.READY:
            if state.state is Phase.FAILED:
                raise self.failure()
            if state.state in (Phase.STOPPED, Phase.STOPPING):
                raise StartCancelled(self.name, "was stopped while it was starting")
            state = await self.changed(state)
        return state

    def failure(self) -> StartFailed:
        """Why it is `FAILED`, as the error that `start()` raises; with the last lines of its log."""
        return StartFailed(self.name, self.state.last_error or "", tail(self._log_path))

    async def stop(self) -> None:
        """Stop it and return once nothing of it is left; idempotent. Cancelling the wait does not cancel the stop."""
        life = self._life  # now: a start() that waits for this end may make another
        if self._child.phase not in (Phase.STOPPED, Phase.STOPPING):
            self._feed(EventKind.STOP)
        if life is not None:
            await asyncio.wait([life])

    async def leave(self) -> None:
        """Release it because this process ends: the next `start()` adopts a running container; a child process is stopped."""
        await self.stop()

    def kill(self, why: str) -> None:
        """End it now (SIGKILL), from any thread: `FAILED` with this reason, and no restart until `start()` or the policy's retry."""
        self._kill_reason = why
        run = self._run
        if run is not None:  # else `_one_run` will look at the reason
            run.kill()

    def restart_unhealthy(self, why: str) -> None:
        """Replace the run, because a probe saw that it no longer streams. No effect unless ready."""
        if self._child.phase is Phase.READY:
            self._feed(EventKind.GAVE_UP, why)

    async def changed(self, seen: EngineState) -> EngineState:
        """Wait until the state differs from `seen`, and return it (at once if it does)."""
        while self._state == seen:
            self._news.clear()
            await self._news.wait()
        return self._state

    # Events in, commands out.

    def _feed(self, kind: EventKind, why: str = "", *, refused: bool = False, barred: bool = False) -> None:
        event = ChildEvent(kind, time.monotonic(), why, refused, barred)
        self._child, commands = step(self._policy, self._child, event)
        if self._child.phase in _GONE:
            self._cancel_timer()
        for command in commands:
            self._run_command(command)
        self._publish()

    def _run_command(self, command: Command) -> None:
        match command.kind:
            case CommandKind.SPAWN:
                self._life = spawn(self._live(), "engine_run", self.name)
            case CommandKind.WAKE:
                self._arm(command.after_s, self._pause_over)
            case CommandKind.KILL:
                self._signal(lambda run: run.kill())
            case CommandKind.TERMINATE:
                self._signal(lambda run: run.terminate())
                self._arm(self._stop_grace_s, lambda: self._signal(lambda run: run.kill()))

    def _signal(self, send: Callable[[EngineRun], None]) -> None:
        if self._run is not None:  # else it is still being spawned, and `_one_run` will look
            send(self._run)

    def _arm(self, after_s: float, call: Callable[[], None]) -> None:
        self._cancel_timer()
        self._timer = asyncio.get_running_loop().call_later(after_s, call)

    def _pause_over(self) -> None:
        if self._child.phase is Phase.FAILED:
            self._kill_reason = None  # a retry starts clean
        self._feed(EventKind.DUE)

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _publish(self) -> None:
        child = self._child
        ready = child.phase is Phase.READY
        state = EngineState(
            name=self.name,
            state=child.phase,
            url=self._url if ready else None,
            model=self._model if ready else None,
            pid=self._run.pid if self._run is not None else None,
            restarts=child.restarts,
            since=child.since,
            last_error=child.error,
            abilities=self._abilities if ready else Abilities(),
        )
        if state == self._state:
            return
        self._state = state
        self._news.set()
        if self._on_change is not None:
            try:
                self._on_change(state)
            except Exception as error:  # of a listener; the supervision goes on
                report("engine_listener", error)

    # One run, from its start to its end.

    async def _live(self) -> None:
        try:
            end = await self._one_run()
        except Exception as error:  # whatever it was: without an end, no other run would begin
            report("engine_run", error)
            end = RunEnd("its driver failed; the gateway's log says where")
        self._ended(end)

    async def _one_run(self) -> RunEnd:
        try:
            self._weights = await asyncio.to_thread(self._weights_on_disk)
            run = await self._spawn()
        except (OSError, EngineError) as error:
            why = error.why if isinstance(error, EngineError) else f"could not be started: {error}"
            return RunEnd(why, refused=getattr(error, "refused", False))
        self._run = run
        try:
            if self._kill_reason is not None:
                run.kill()
            elif self._child.phase is Phase.STOPPING:
                run.terminate()
            self._publish()
            return await self._until_end(run)
        finally:
            run.close()
            self._run = self._url = None

    def _weights_on_disk(self) -> Snapshot | None:
        return snapshot(self._spec.artefact) if self._spec.artefact is not None else None

    def _ended(self, end: RunEnd) -> None:
        killed = self._kill_reason is not None
        why = self._kill_reason or end.why
        self._feed(EventKind.EXITED, why, refused=end.refused, barred=killed)

    async def _until_end(self, run: EngineRun) -> RunEnd:
        ready = spawn(self._until_ready(run), "engine_ready", self.name)
        ready.add_done_callback(self._give_up_if_probe_failed)
        try:
            return await run.wait()
        finally:
            # Before the end is reported: readiness must not be reported after it.
            ready.cancel()
            await asyncio.wait([ready])

    def _give_up_if_probe_failed(self, ready: asyncio.Task[None]) -> None:
        failed = not ready.cancelled() and ready.exception() is not None
        if failed and self._child.phase is Phase.STARTING and not self._child.doomed:
            why = "its driver failed while it was coming up; the gateway's log says where"
            self._feed(EventKind.GAVE_UP, why)

    async def _until_ready(self, run: EngineRun) -> None:
        spec, began = self._spec, time.monotonic()
        try:
            async with asyncio.timeout(self._start_timeout_s):
                url = await run.address()
        except TimeoutError:
            return self._give_up("no address in time")
        if url is None:
            return None  # it refused, and ends by itself
        model = self._model or self.name
        result = await wait_until_streams(
            url,
            model=model,
            deadline_s=began + self._start_timeout_s - time.monotonic(),
            dialect=spec.dialect,
            kind=spec.kind,
            access=spec.access,
        )
        if not result.ok:
            what = "stream" if spec.kind == "chat" else "give embeddings"
            return self._give_up(f"{url} does not {what}: {result.for_operators}")
        self._abilities = await abilities(url, spec, model=model)
        if self._child.phase is Phase.STARTING:  # else it is being stopped
            self._url = url
            run.up()
            self._feed(EventKind.STREAMS)
        return None

    def _give_up(self, why: str) -> None:
        if self._child.phase is Phase.STARTING:  # else it is being stopped
            seconds = time.monotonic() - self._child.since
            self._feed(EventKind.GAVE_UP, f"gave up after {seconds:.1f} s: {why}")
