"""The `embedded` driver: llama.cpp's server as a child of this process, kept alive.

A thin shell around `deploy.supervisor`, which decides; here the events are made and the effects
are run. Each child has one task that lives exactly as long as it does: it spawns, waits for the
address, probes until a token streams, waits for the end, and reports that end exactly once.
Nothing ever cancels that task; a child is ended by a signal, and the task then ends by itself.
"""

import asyncio
import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from deploy import supervisor
from deploy.abilities import ABILITIES_SECONDS, Abilities, abilities
from deploy.board import StateBoard
from deploy.child import Child, Report, spawn
from deploy.engine import EngineState, OnChange, Phase
from deploy.errors import SpecError, StartCancelled, StartFailed
from deploy.flags import parse_flags
from deploy.log import LogFile, log_path, tail
from deploy.probe import wait_until_streams
from deploy.spec import EngineSpec
from deploy.weights import find_gguf

_GONE = (Phase.STOPPED, Phase.FAILED)


class EmbeddedEngine:
    """An `Engine` that runs llama.cpp's server from the `xllamacpp` wheel.

    `start_timeout_s` bounds one child's time from its start to its first token, `stop_grace_s`
    the time between SIGTERM and SIGKILL. For use in one event loop.

    Raises:
        SpecError: not a spec for this driver.
        FlagError: one of `args` is not a flag of the embedded engine.
    """

    def __init__(
        self,
        spec: EngineSpec,
        *,
        state_dir: Path,
        on_change: OnChange | None = None,
        policy: supervisor.Policy | None = None,
        start_timeout_s: float = 120.0,
        stop_grace_s: float = 5.0,
        environ: Mapping[str, str] | None = None,
    ) -> None:
        if spec.driver != "embedded" or spec.artefact is None:
            raise SpecError(spec.name, "driver", f"{spec.driver!r} is not the embedded driver")
        self._spec, self._artefact = spec, spec.artefact
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
        self._settings = parse_flags(spec.name, spec.args, cores=cores or 1)
        self._log_path = log_path(state_dir, spec.name)
        self._policy = policy or supervisor.Policy()
        self._start_timeout_s = start_timeout_s
        self._stop_grace_s = stop_grace_s
        self._environ = environ
        self._board = StateBoard(spec.name, on_change)
        self._machine = supervisor.Machine()
        self._config: dict[str, Any] = {}
        self._child: Child | None = None
        self._url: str | None = None
        self._found = Abilities()
        self._life: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None

    @property
    def name(self) -> str:
        return self._spec.name

    @property
    def state(self) -> EngineState:
        return self._board.state

    @property
    def url(self) -> str | None:
        return self._board.state.url

    @property
    def log_path(self) -> Path:
        """Where the present or last child's log is; the one before lies beside it as `.log.1`."""
        return self._log_path

    async def changed(self, seen: EngineState) -> EngineState:
        return await self._board.changed(seen)

    async def start(self) -> EngineState:
        """Bring it up and return once it has streamed a real token; see `Engine.start`."""
        while self._machine.phase is Phase.STOPPING:
            await self._board.changed(self.state)
        mine = self._machine.phase in _GONE
        if mine:
            model = str(find_gguf(self._artefact).resolve())
            self._config = {
                "model": model,
                "alias": self.name,
                "settings": self._settings,
            }
            self._feed(supervisor.Start(time.monotonic()))
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
                raise StartFailed(self.name, state.last_error or "", tail(self._log_path))
            if state.state in (Phase.STOPPED, Phase.STOPPING):
                raise StartCancelled(self.name, "was stopped while it was starting")
            state = await self._board.changed(state)
        return state

    async def stop(self) -> None:
        """Bring it down: SIGTERM, then SIGKILL after the grace; see `Engine.stop`.

        Cancelling the wait does not cancel the stop.
        """
        life = self._life  # now: a start() that waits for this end may make another
        if self._machine.phase not in (Phase.STOPPED, Phase.STOPPING):
            self._feed(supervisor.Stop(time.monotonic()))
        if life is not None:
            await asyncio.wait([life])

    def condemn(self, why: str) -> None:
        """Replace the child: somebody saw that it no longer streams. No effect unless ready."""
        if self._machine.phase is Phase.READY:
            self._feed(supervisor.GaveUp(time.monotonic(), why))

    # Events in, effects out.

    def _feed(self, event: supervisor.Event) -> None:
        self._machine, effects = supervisor.step(self._policy, self._machine, event)
        for effect in effects:
            self._run(effect)
        if self._machine.phase in _GONE:
            self._cancel_timer()
        self._publish()

    def _run(self, effect: supervisor.Effect) -> None:
        match effect:
            case supervisor.Spawn():
                self._life = asyncio.create_task(self._live(), name=f"engine {self.name}")
            case supervisor.Wake(after_s):
                self._arm(after_s, lambda: self._feed(supervisor.Due(time.monotonic())))
            case supervisor.Kill():
                self._signal(Child.kill)
            case supervisor.Terminate():
                self._signal(Child.terminate)
                self._arm(self._stop_grace_s, lambda: self._signal(Child.kill))

    def _signal(self, send: Callable[[Child], None]) -> None:
        if self._child is not None:  # else it is still being spawned, and `_live` will look
            send(self._child)

    def _arm(self, after_s: float, call: Callable[[], None]) -> None:
        self._cancel_timer()
        self._timer = asyncio.get_running_loop().call_later(after_s, call)

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _publish(self) -> None:
        machine = self._machine
        ready = machine.phase is Phase.READY
        self._board.publish(
            EngineState(
                name=self.name,
                state=machine.phase,
                url=self._url if ready else None,
                model=self.name if ready else None,
                pid=self._child.pid if self._child is not None else None,
                restarts=machine.restarts,
                since=machine.since,
                last_error=machine.error,
                abilities=self._found if ready else Abilities(),
            )
        )

    # One child's life.

    async def _live(self) -> None:
        try:
            log = LogFile(self._log_path)
            child = await spawn(self._config, log, self._environ or os.environ)
        except OSError as error:
            self._feed(supervisor.Exited(time.monotonic(), f"could not be started: {error}"))
            return
        self._child = child
        try:
            if self._machine.phase is Phase.STOPPING:
                child.terminate()
            self._publish()
            status, report = await self._accompany(child)
        finally:
            child.close()
            self._child = self._url = None
        self._feed(_end_of(status, report))

    async def _accompany(self, child: Child) -> tuple[int, Report]:
        ready = asyncio.create_task(self._until_ready(child))
        try:
            status = await child.wait()
        finally:
            # Before the end is reported: no news of readiness may come after it.
            ready.cancel()
            await asyncio.wait([ready])
        report = child.report.result() if child.report.done() else Report()
        return status, report

    async def _until_ready(self, child: Child) -> None:
        try:
            async with asyncio.timeout(self._start_timeout_s):
                # Shielded: a timeout here must not cancel what others read.
                report = await asyncio.shield(child.report)
                if report.url is None:
                    return  # it refuses, and ends by itself
                result = await wait_until_streams(
                    report.url, model=self.name, deadline_s=self._start_timeout_s, kind=self._spec.kind
                )
            why = f"{result.verdict}: {result.detail}"
            if result.ok and self._spec.kind == "chat":  # the questions are all about chat
                self._found = await abilities(
                    report.url, model=self.name, dialect="llama-server", deadline_s=ABILITIES_SECONDS
                )
        except TimeoutError:
            result, why = None, "no token in time"
        if self._machine.phase is not Phase.STARTING:
            return  # it is being stopped
        now = time.monotonic()
        if result is not None and result.ok:
            self._url = report.url
            self._feed(supervisor.Streams(now))
        else:
            limit = f"gave up after {now - self._machine.since:.1f} s"
            self._feed(supervisor.GaveUp(now, f"{limit}: {why}"))


def _end_of(status: int, report: Report) -> supervisor.Exited:
    now = time.monotonic()
    if report.error is not None:
        return supervisor.Exited(now, f"refused to start: {report.error}", refused=True)
    how = f"was killed by signal {-status}" if status < 0 else f"exited with status {status}"
    when = "while serving" if report.url else "while loading"
    return supervisor.Exited(now, f"{how} {when}")
