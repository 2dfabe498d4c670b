"""What a start brings about: orphans go, who is wanted comes up, and who runs already is left alone.

On shared memory two engines must not load at once, so containers that have to be started come one
after the other, those that somebody is served by first. Children of ours and strangers all come at once.
"""

import asyncio
from collections.abc import Collection, Mapping
from functools import partial

from app.engines.backend import loggable
from app.promotion.effects import Effect, Verb
from app.promotion.machine import Machine
from app.promotion.reconcile import reconcile
from app.promotion.room import LOAD_SECONDS
from app.promotion.site import Site
from app.telemetry.log import Logger
from deploy.core.errors import DeployError
from deploy.core.tasks import supervise
from deploy.drivers import factory
from deploy.drivers.factory import FoundContainer

HOLDER = "start"
"""Of the loading lease."""


class Boot:
    """One start. `begin` it before the first request; what takes its time goes on behind it."""

    def __init__(self, site: Site, log: Logger) -> None:
        self._site = site
        self._log = log
        self._task: asyncio.Task[None] | None = None

    async def begin(self, live: Mapping[str, str], unfinished: Collection[Machine]) -> None:
        """`live` are the engines of the models, `unfinished` the operations, as they were found."""
        models, shelf = self._site.config.models, self._site.shelf
        resident = {shelf.digest(name) for model in models.values() for name in model.fallback}
        found = await self._found()
        running = {one.spec: one for one in found}
        effects = reconcile(live, unfinished, resident, running)
        for effect in effects:
            if effect.verb is Verb.STOP:
                await self._remove(running[effect.engine])
        starts = [effect for effect in effects if effect.verb is Verb.START]
        up = {one.spec for one in found if one.running}
        waiting = [effect for effect in starts if not self._want(effect, up)]
        waiting.sort(key=lambda effect: effect.engine not in live.values())
        self._task = supervise(partial(self._load, waiting), "boot")

    async def stop(self) -> None:
        """Leave the rest."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    async def _found(self) -> tuple[FoundContainer, ...]:
        try:
            return await factory.running(self._site.shelf.specs(), state_dir=self._site.config.state_dir)
        except DeployError as error:
            self._log.error("engines_unknown", error=loggable(error))
            return ()

    async def _remove(self, orphan: FoundContainer) -> None:
        self._log.warning("orphan", engine=orphan.engine)
        try:
            await factory.remove(orphan)
        except DeployError as error:
            self._log.error("orphan_stays", engine=orphan.engine, error=loggable(error))

    def _want(self, effect: Effect, up: Collection[str]) -> bool:
        """Whether it could be asked for at once."""
        spec = self._site.shelf.spec(effect.engine)
        if spec.driver == "docker" and effect.engine not in up:
            return False
        self._site.pool.want(spec, self._model(spec.name))
        return True

    async def _load(self, waiting: list[Effect]) -> None:
        """One after the other; one that fails in whatever way is not among those that are tried again here."""
        while waiting:
            spec = self._site.shelf.spec(waiting.pop(0).engine)
            try:
                async with self._site.room.lease.held(HOLDER, wait_s=LOAD_SECONDS):
                    await self._site.pool.bring_up(spec, self._model(spec.name))
            except (DeployError, OSError) as error:
                # It is tried again for as long as somebody wants it; the others need not wait for that.
                said = loggable(error) if isinstance(error, DeployError) else error.strerror
                self._log.error("engine_down", engine=spec.name, error=said)

    def _model(self, engine: str) -> str:
        """A model that is served by it; any, if there is none."""
        models, pool = self._site.config.models, self._site.pool
        return next((name for name in models if engine in pool.model_route(name).engines), next(iter(models)))
