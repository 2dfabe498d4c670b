"""Watches replicas: one that differs from the others, or from what was promoted, gets no requests.

A replica is identified after every start, before its first request: by its process or container, as a candidate is
(`app.promotion.inspection`), and by the facts that it reports, which must equal the other replicas'. For an engine that
somebody else runs, only the latter is possible. One that cannot be identified is asked again.
"""

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from pathlib import PurePath
from typing import Final

from app.engines.pool import EnginePool
from app.promotion import inspection
from app.promotion.spec_catalogue import SpecCatalogue
from app.promotion.state_machine import EffectError, RefusalError
from app.telemetry.log import Logger
from deploy.core.tasks import report
from deploy.engine.spec import EngineSpec
from deploy.engine.supervised import Engine

AGAIN_SECONDS: Final = 5.0
"""Seconds until a replica that could not be identified is asked again."""
Facts = Mapping[str, object]
"""What an engine states of itself; what it does not state is absent."""


class ReplicaWatch:
    """Identifies replicas as they come up. `run` is its task."""

    def __init__(self, pool: EnginePool, catalogue: SpecCatalogue, log: Logger) -> None:
        self._pool = pool
        self._catalogue = catalogue
        self._log = log
        self._facts: dict[str, Facts] = {}

    async def run(self) -> None:
        """Watch until cancelled."""
        while True:
            self._pool.changed.clear()
            for name in self._pool.to_identify():
                try:
                    await self._look_at(name)
                except Exception as error:  # the others are identified all the same
                    report("replicas", error)
            with suppress(TimeoutError):
                async with asyncio.timeout(AGAIN_SECONDS if self._pool.to_identify() else None):
                    await self._pool.changed.wait()

    async def _look_at(self, name: str) -> None:
        spec = next((spec for spec in self._catalogue.values() if spec.name == name), None)
        if spec is None:
            return
        engine = self._pool.started(name)
        try:
            facts = await _facts(engine, spec)
        except RefusalError as refused:
            why = "it is not what was promoted or configured"
            return self._refuse(name, refused.fault.code, why, refused.fault.message)
        except EffectError as error:
            self._log.warning("replica_unknown", engine=name, code=error.fault.code)
            return
        for sibling in sorted(self._pool.siblings(name)):
            others = self._facts.get(sibling, {})
            if self._pool.takes(sibling) and (what := difference(facts, others)):
                detail = f"its {what} is {facts[what]!s:.100}, and that of {sibling} {others[what]!s:.100}"
                return self._refuse(name, "mismatch_replica", f"its {what} is not that of {sibling}", detail)
        self._facts[name] = facts
        self._pool.identified(name)
        self._log.info("replica_identified", engine=name)

    def _refuse(self, name: str, code: str, why: str, detail: str) -> None:
        """`why` may be shown to anybody; `detail` may quote the engine, and is for operators."""
        shown = f"{code}: {why}"
        self._pool.refuse(name, shown, detail)
        self._log.error("replica_refused", engine=name, code=code, reason=shown)


def difference(found: Facts, others: Facts) -> str | None:
    """What a replica and its sibling report differently, the first of it; None if there is nothing."""
    return next((what for what in sorted(found.keys() & others.keys()) if found[what] != others[what]), None)


async def _facts(engine: Engine, spec: EngineSpec) -> Facts:
    """What runs. Raises RefusalError: not what the configuration and the manifest say; EffectError: it does not state it."""
    found = await inspection.identify(engine, spec)
    model = PurePath(str(found["model"])).name if found["model"] else None
    facts = {"build": found["build"], "model": model, "numerics": found["numerics"]}
    return {name: value for name, value in facts.items() if value is not None}
