"""What every engine of ours has in common, a child or a container: it is kept alive by the table.

A thin shell around `deploy.engine.supervisor`, which decides; here the events are made and the effects
are run. Each run has one task that lives exactly as long as it does: it spawns, waits for the
address, probes until a token streams, waits for the end, and reports that end exactly once.
Nothing but `leave()` cancels that task; a run is ended by a signal, and the task ends by itself.
"""

import asyncio
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from deploy.core.errors import EngineError, StartCancelled, StartFailed
from deploy.core.tasks import report, spawn
from deploy.engine import supervisor
from deploy.engine.abilities import ABILITIES_SECONDS, Abilities, abilities
from deploy.engine.engine import EngineState, OnChange, Phase
from deploy.engine.log import log_path, tail
from deploy.engine.probe import wait_until_streams
from deploy.engine.run import End, Run
from deploy.engine.spec import EngineSpec, spec_digest
from deploy.engine.state_watcher import StateBoard
from gates.artefact.artefact import Snapshot, snapshot

_GONE = (Phase.STOPPED, Phase.FAILED)


class Supervised(ABC):
    """An `Engine` whose runs a driver makes.

    `start_timeout_s` bounds one run's time from its start to its first token, `stop_grace_s` the
    time between SIGTERM and SIGKILL. For use in one event loop.
    """

    def __init__(
        self,
        spec: EngineSpec,
        *,
        state_dir: Path,
        on_change: OnChange | None,
        policy: supervisor.Policy | None,
        start_timeout_s: float,
        stop_grace_s: float,
    ) -> None:
        self._spec = spec
        self._log_path = log_path(state_dir, spec.name)
        self._policy = policy or supervisor.Policy()
        self._start_timeout_s = start_timeout_s
        self._stop_grace_s = stop_grace_s
        self._board = StateBoard(spec.name, on_change)
        self._machine = supervisor.Machine()
        self._run: Run | None = None
        self._url: str | None = None
        self._found = Abilities()
        self._weights: Snapshot | None = None  # as they lay there before the present run was made
        self._barred: str | None = None
        self._life: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None

    @abstractmethod
    def _prepare(self) -> None:
        """Look whether the configuration can work, before anything is started.

        Raises:
            WeightsError: the weights are not where the spec says.
        """

    @abstractmethod
    async def _spawn(self) -> Run:
        """Make a run.

        Raises:
            OSError, EngineError: it could not be made, and nothing is left behind.
            StartRefused: nor could another one.
        """

    async def describe(self) -> Mapping[str, Any]:
        """What runs now; see `Engine.describe`. Drivers add to it."""
        return {
            "name": self.name,
            "driver": self._spec.driver,
            "spec": spec_digest(self._spec),
            "url": self.url,
            "pid": self._run.pid if self._run is not None else None,
            "weights": self._weights,
        }

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
        """Where the present or last run's log is; the one before lies beside it as `.log.1`."""
        return self._log_path

    async def changed(self, seen: EngineState) -> EngineState:
        return await self._board.changed(seen)

    async def start(self) -> EngineState:
        """Bring it up and return once it has streamed a real token; see `Engine.start`."""
        while self._machine.phase is Phase.STOPPING:
            await self._board.changed(self.state)
        mine = self._machine.phase in _GONE
        if mine:
            self._prepare()
            self._barred = None
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

    async def leave(self) -> None:
        """A child ends with us: this is `stop()`. Drivers whose runs outlive us know better."""
        await self.stop()

    def kill(self, why: str) -> None:
        """End it now, for good; see `Engine.kill`."""
        self._barred = why
        run = self._run
        if run is not None:  # else `_live` will look
            run.kill()

    def condemn(self, why: str) -> None:
        """Replace the run: somebody saw that it no longer streams. No effect unless ready."""
        if self._machine.phase is Phase.READY:
            self._feed(supervisor.GaveUp(time.monotonic(), why))

    # Events in, effects out.

    def _feed(self, event: supervisor.Event) -> None:
        self._machine, effects = supervisor.step(self._policy, self._machine, event)
        for effect in effects:
            self._do(effect)
        if self._machine.phase in _GONE:
            self._cancel_timer()
        self._publish()

    def _do(self, effect: supervisor.Effect) -> None:
        match effect:
            case supervisor.Spawn():
                self._life = spawn(self._live(), "engine_run", self.name)
            case supervisor.Wake(after_s):
                self._arm(after_s, lambda: self._feed(supervisor.Due(time.monotonic())))
            case supervisor.Kill():
                self._signal(lambda run: run.kill())
            case supervisor.Terminate():
                self._signal(lambda run: run.terminate())
                self._arm(self._stop_grace_s, lambda: self._signal(lambda run: run.kill()))

    def _signal(self, send: Callable[[Run], None]) -> None:
        if self._run is not None:  # else it is still being spawned, and `_live` will look
            send(self._run)

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
                pid=self._run.pid if self._run is not None else None,
                restarts=machine.restarts,
                since=machine.since,
                last_error=machine.error,
                abilities=self._found if ready else Abilities(),
            )
        )

    # One run's life.

    async def _live(self) -> None:
        try:
            end = await self._one_run()
        except Exception as error:  # whatever it was: the table hears of the end, or no other run would begin
            report("engine_run", error)
            end = End("its driver failed; the gateway's log says where")
        self._over(end)

    async def _one_run(self) -> End:
        try:
            self._weights = await asyncio.to_thread(self._look_at_weights)
            run = await self._spawn()
        except (OSError, EngineError) as error:
            why = error.why if isinstance(error, EngineError) else f"could not be started: {error}"
            return End(why, refused=getattr(error, "refused", False))
        self._run = run
        try:
            if self._barred is not None:
                run.kill()
            elif self._machine.phase is Phase.STOPPING:
                run.terminate()
            self._publish()
            return await self._accompany(run)
        finally:
            run.close()
            self._run = self._url = None

    def _look_at_weights(self) -> Snapshot | None:
        return snapshot(self._spec.artefact) if self._spec.artefact is not None else None

    def _over(self, end: End) -> None:
        barred = self._barred is not None
        why = self._barred or end.why
        self._feed(supervisor.Exited(time.monotonic(), why, refused=end.refused, barred=barred))

    async def _accompany(self, run: Run) -> End:
        ready = spawn(self._until_ready(run), "engine_ready", self.name)
        ready.add_done_callback(self._give_up_if_failed)
        try:
            return await run.wait()
        finally:
            # Before the end is reported: no news of readiness may come after it.
            ready.cancel()
            await asyncio.wait([ready])

    def _give_up_if_failed(self, ready: asyncio.Task[None]) -> None:
        failed = not ready.cancelled() and ready.exception() is not None
        if failed and self._machine.phase is Phase.STARTING and not self._machine.doomed:
            why = "its driver failed while it was coming up; the gateway's log says where"
            self._feed(supervisor.GaveUp(time.monotonic(), why))

    async def _until_ready(self, run: Run) -> None:
        spec, url = self._spec, None
        try:
            async with asyncio.timeout(self._start_timeout_s):
                url = await run.address()
                if url is None:
                    return  # it refuses, and ends by itself
                result = await wait_until_streams(
                    url,
                    model=self.name,
                    deadline_s=self._start_timeout_s,
                    dialect=spec.dialect,
                    kind=spec.kind,
                )
            why = result.for_operators
            if result.ok and spec.kind == "chat":  # the questions are all about chat
                self._found = await abilities(
                    url, model=self.name, dialect=spec.dialect, deadline_s=ABILITIES_SECONDS
                )
        except TimeoutError:
            result, why = None, "no token in time"
        if self._machine.phase is not Phase.STARTING:
            return  # it is being stopped
        now = time.monotonic()
        if result is not None and result.ok:
            self._url = url
            run.up()
            self._feed(supervisor.Streams(now))
        else:
            limit = f"gave up after {now - self._machine.since:.1f} s"
            self._feed(supervisor.GaveUp(now, f"{limit}: {why}"))
