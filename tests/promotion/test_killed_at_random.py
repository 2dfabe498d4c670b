"""One gateway's state folder lives through many kills at random moments.

Promotions and rollbacks are killed in a random phase after a random delay, and now and then the
start that follows is killed as well, before it has put everything right. The seed is printed; KILLS_SEED
repeats its dice, though not the machine's own moments. Warming, the canary and the bake are as short
as the configuration allows; none is left out.
"""

import asyncio
import os
import random
import time
from collections import Counter
from pathlib import Path

import pytest

from app.config.config import Config, load
from app.promotion.repository import FILE
from app.promotion.state_machine import FINAL, PATHS, OperationKind
from app.registry.reader import RegistryReader
from tests.app.house import Scrape
from tests.app.promotion.stage import signed, statement, tables
from tests.promotion.process import (
    OPERATOR,
    Gateway,
    processes_of,
    serving,
    short_suite,
    start_forked,
    written,
)
from tests.scale import PATIENCE, scaled

pytestmark = [pytest.mark.promotion, pytest.mark.engine, pytest.mark.timeout(1800)]
KILLS = scaled(8, 100)
RECOVERIES = 0.2
"""How often it is the start after a kill that is killed."""
BACK = 0.4
"""How often a model that was promoted goes back."""
DELAY_S = 0.4


def configured(folder: Path) -> Path:
    """`small` and `fp4`, a suite whose canary is two questions, and a bake of a third of a second."""
    wanted = tables(folder / "state")
    wanted["engines"] = {name: wanted["engines"][name] for name in ("small", "fp4")}
    for engine in wanted["engines"].values():
        engine["args"] = ["--ctx-size", "1024", "--threads", "1"]
    wanted["gates"]["suite"] = short_suite(folder)
    wanted["promotion"] |= {"bake_seconds": 0.3, "shift_weights": [50], "shift_seconds": 0.2}
    return written(folder, wanted)


class Life:
    """The state folder, and what was done to it."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.folder = folder
        self.path = configured(folder)
        self.config: Config = load(self.path)
        self.dice = random.Random(seed)
        self.hits: Counter[str] = Counter()
        self.starts = [2.0]  # seconds that starts took

    def left(self) -> str:
        """What the operation was doing when the gateway went, as the registry has it."""
        with RegistryReader.at(self.folder / "state" / FILE) as registry:
            registry.verify_chain()
            newest = registry.operations()[-1]
        return f"{newest.kind} {newest.phase}"

    async def kill_one(self) -> None:
        """A gateway comes up, is whole, begins something, and is killed at it."""
        began = time.monotonic()
        async with serving(self.path, start_forked) as gateway:
            self.starts.append(time.monotonic() - began)
            await self.check(gateway)
            operation, kind = await self.begin(gateway)
            phase = self.dice.choice([phase for phase in PATHS[kind] if phase not in FINAL])
            reached = await gateway.until(operation, phase)
            assert "id" not in reached, reached
            await asyncio.sleep(DELAY_S * self.dice.random() ** 3)  # mostly little: phases are short
            await gateway.kill()
        await self.gone()
        self.hits[self.left()] += 1

    async def kill_recovery(self) -> None:
        """The start after a kill is killed too, in its second half or a little after it."""
        before = self.left()
        gateway = await start_forked(self.path)
        await asyncio.sleep(self.starts[-1] * self.dice.uniform(0.5, 1.2))
        gateway.kill()
        await gateway.wait()
        await self.gone()
        self.hits[f"recovery of {before}"] += 1

    async def begin(self, gateway: Gateway) -> tuple[str, OperationKind]:
        """A rollback, or a promotion that will go well if it is let."""
        now = (await gateway.get("/admin/status"))["models"]["annie"]
        kind = (
            OperationKind.ROLLBACK if now["previous"] and self.dice.random() < BACK else OperationKind.PROMOTE
        )
        body = {"model": "annie"}
        if kind is OperationKind.PROMOTE:
            engine = next(name for name in self.config.engines if name != now["live"])
            data = signed(self.config, statement(self.config, engine, now["live"]))
            _, report = await gateway.post("/admin/reports", data)
            body |= {"engine": engine, "report": report["digest"]}
        status, operation = await gateway.post(f"/admin/{kind}", body)
        assert status == 202, operation
        return str(operation["id"]), kind

    async def check(self, gateway: Gateway) -> None:
        """Exactly one live route, which streams; no other engine; a chain that holds."""
        expected = "small"
        for operation in (await gateway.get("/admin/operations?limit=1"))["operations"]:
            ended = await gateway.until(operation["id"], "")  # no step has that name: up to the end
            assert ended["done"] and ended["phase"] in ("succeeded", "failed", "rolled_back"), ended
            expected = ended["engine" if ended["phase"] == "succeeded" else "incumbent"]
        assert (await gateway.get("/admin/status"))["models"]["annie"]["live"] == expected
        status, engine, said = await gateway.ask()
        assert (status, engine) == (200, expected) and said.endswith(b"data: [DONE]\n\n")
        async with gateway.client.get(gateway.admin + "/metrics", headers=OPERATOR) as response:
            active = Scrape.of(await response.text())
        assert active("manners_active_engine") == active("manners_active_engine", engine=expected) == 1
        listed = (await gateway.get("/admin/engines"))["engines"]
        assert [one["name"] for one in listed if one["state"] == "ready"] == [expected]
        assert len(processes_of(self.folder) - {gateway.process.pid}) == 1
        assert (await gateway.get("/admin/audit?newest=1"))["chain"] == {"ok": True}

    async def gone(self) -> None:
        """Wait until nothing of a dead gateway is left."""
        async with asyncio.timeout(PATIENCE):
            while processes_of(self.folder):
                await asyncio.sleep(0.02)


async def test_kills_at_random_moments_leave_one_engine_that_serves(tmp_path: Path) -> None:
    seed = int(os.environ.get("KILLS_SEED", random.SystemRandom().randrange(10**6)))
    print(f"KILLS_SEED={seed}")
    life = Life(tmp_path, seed)
    while (kills := life.hits.total()) < KILLS:
        again = kills > 0 and life.dice.random() < RECOVERIES
        await (life.kill_recovery() if again else life.kill_one())
    async with serving(life.path, start_forked) as gateway:
        await life.check(gateway)
    with RegistryReader.at(tmp_path / "state" / FILE) as registry:
        registry.verify_chain()
        assert registry.operations(unfinished_only=True) == ()
        ends = Counter(operation.phase for operation in registry.operations())
    for what, count in sorted(life.hits.items()):
        print(f"{count:4} killed in {what}")
    print(f"{KILLS} kills; operations ended: {dict(ends)}; {sum(life.starts[1:]):.0f} s were starts")
