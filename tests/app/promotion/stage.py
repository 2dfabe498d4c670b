"""A gateway over two real engines, reports that let either in, and an operator who asks over HTTP."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from app.config.config import Config, parse
from app.engines.identity import describe
from app.promotion.facts import suite_in_force
from app.promotion.state_machine import TABLE, Action, Effect, EffectEvidence, OperationPhase, OperationPlan
from app.promotion.steps import HANDLERS, Dependencies
from gates.artefact.artefact import folder_of, load
from gates.policy.load import load_policy
from gates.report import dsse
from gates.report.keys import load_or_make
from gates.report.statement import ComparedArm, Pinned, Statement, format_time
from gates.report.statement import render as statement_text
from tests.app.house import TOKEN, GatewayFixture, run
from tests.gates.report import examples
from tests.scale import PATIENCE

MODELS = Path(__file__).parents[3] / "models"
OPERATOR = {"authorization": f"Bearer {TOKEN}"}
ENGINES = {"small": "annie-nano-q4_k_m", "large": "annie-nano-f16"}
"""Both are annie-nano, so that each may be the other's baseline."""
FP4 = "annie-nano-nvfp4"
"""A third of her, engine `fp4`. It descends from hers through a folder that no engine here serves."""


_ASIDE = (OperationPhase.SHIFTING, OperationPhase.RESUMING, OperationPhase.ROLLING_BACK)
GOOD_WAY = (*(phase for phase in TABLE if phase not in _ASIDE), OperationPhase.SUCCEEDED)
"""The phases of a promotion that goes well, without a share of the traffic."""


async def passed_over(site: Dependencies, plan: OperationPlan, effect: Effect) -> EffectEvidence:
    """An effect that is not what a test is about."""
    return {}


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Candidates are neither warmed nor questioned."""
    hasten(monkeypatch)


def hasten(patch: pytest.MonkeyPatch) -> None:
    """No candidate is warmed or questioned, which takes a while on two cores, until the patch is undone."""
    for verb in (Action.WARM, Action.PROBE):
        patch.setitem(HANDLERS, verb, passed_over)


def tables(state: Path, **model: Any) -> dict[str, Any]:
    """`small` is live; the others wait."""
    # One thread: two engines' threads that wait for one another on two cores take all of both.
    args = ["--ctx-size", "4096", "--threads", "1"]
    engine = {"dialect": "llama-server", "driver": "embedded", "args": args}
    engines = {**ENGINES, "fp4": FP4, "spare": ENGINES["small"], "stranger": "stranger-nano-q4_k_m"}
    return {
        "gateway": {"listen": "127.0.0.1:0", "admin": "127.0.0.1:0", "state": str(state)},
        "engines": {name: {**engine, "artefact": str(MODELS / folder)} for name, folder in engines.items()},
        "models": {"annie": {"live": "small", "concurrency": 16, **model}},
        "gates": {"suite": "annie-nano", "policy": "annie-nano"},
        "promotion": {
            "bake_seconds": 0.1,
            "warm_tokens": [50],
            "warm_at_once": [],
            "bake_slow_factor": 1000.0,
        },
    }


def settings(state: Path, **model: Any) -> Config:
    """The configuration of these tables."""
    return parse(tables(state, **model), state)


def statement(config: Config, candidate: str, baseline: str, /, **changes: Any) -> Statement:
    """What a gate would state of a pass of these two engines, now."""

    def arm(name: str) -> ComparedArm:
        spec = config.engines[name]
        assert spec.artefact is not None
        found = load(folder_of(spec.artefact))
        return ComparedArm(found.identity, describe(spec, found))

    suite, policy = suite_in_force(config.gates.suite), load_policy(config.gates.policy)
    made = replace(
        examples.passing(),
        candidate=arm(candidate),
        baseline=arm(baseline),
        suite=Pinned(suite.name, None, suite.digest),
        policy=Pinned(policy.name, None, policy.digest),
        decision=examples.passed(policy),
        created=format_time(datetime.now(UTC)),
        expires=None,
        ancestors=(load(MODELS / f"{FP4}-hf").identity,),
    )
    return replace(made, **changes)


def signed(config: Config, stated: Statement) -> bytes:
    """The statement as a report of this host's own key."""
    return dsse.render(dsse.sign(statement_text(stated), load_or_make(config.state_dir / "keys")))


class Stage:
    """The house, and its operator."""

    def __init__(self, house: GatewayFixture) -> None:
        self.house = house
        self.config = house.gateway.config
        self.patience = PATIENCE  # with an operation

    async def post(self, path: str, body: Any = None, **headers: str) -> tuple[int, Any]:
        """Status and JSON. Bytes go as they are."""
        sent = {"data": body} if isinstance(body, bytes) else {"json": {} if body is None else body}
        url = self.house.admin + path
        async with self.house.client.post(url, headers={**OPERATOR, **headers}, **sent) as response:
            return response.status, await response.json()

    async def get(self, path: str) -> Any:
        """JSON of a path of the operators'."""
        return (await self.house.operate(path)).json

    async def report(self, candidate: str, baseline: str, /, **changes: Any) -> str:
        """Upload a report; its digest."""
        data = signed(self.config, statement(self.config, candidate, baseline, **changes))
        status, body = await self.post("/admin/reports", data)
        assert status in (200, 201), body
        return str(body["digest"])

    async def wish(self, engine: str, report: str | None, query: str = "", **headers: str) -> tuple[int, Any]:
        """Ask to promote."""
        body = {"model": "annie", "engine": engine, "report": report}
        return await self.post(f"/admin/promote{query}", body, **headers)

    async def promote(self, engine: str, baseline: str | None = None) -> Any:
        """Promote an engine on a sound report; the operation as it ended."""
        baseline = baseline or next(name for name in ENGINES if name != engine)
        status, operation = await self.wish(engine, await self.report(engine, baseline))
        assert status == 202, operation
        return await self.ended(operation["id"])

    async def rollback(self) -> Any:
        """Go back; the operation as it ended."""
        status, operation = await self.post("/admin/rollback", {"model": "annie"})
        assert status == 202, operation
        return await self.ended(operation["id"])

    async def ended(self, operation: str) -> Any:
        """The operation, once it is over."""
        return (await self.events(operation))[-1][2]

    async def events(
        self, operation: str, after: int = 0, until: str | None = None
    ) -> list[tuple[int, str, Any]]:
        """Events (id, kind, data) up to the end, or up to the first step of a phase."""
        found: list[tuple[int, str, Any]] = []
        headers = {**OPERATOR, "last-event-id": str(after)}
        url = f"{self.house.admin}/admin/operations/{operation}/events"
        async with asyncio.timeout(self.patience), self.house.client.get(url, headers=headers) as response:
            assert response.status == 200
            async for name, value in _fields(response):
                if name == "id":
                    number = int(value)
                elif name == "event":
                    kind = value
                elif name == "data":
                    found.append((number, kind, json.loads(value)))
                    if until is not None and found[-1][2].get("phase") == until:
                        break
        return found


async def _fields(response: aiohttp.ClientResponse) -> AsyncIterator[tuple[str, str]]:
    async for line in response.content:
        name, colon, value = line.decode().rstrip("\n").partition(": ")
        if colon and name:
            yield name, value


@asynccontextmanager
async def stage(state: Path, config: Config | None = None) -> AsyncIterator[Stage]:
    """A gateway of these settings, ready."""
    async with run(config or settings(state)) as house:
        yield Stage(house)


class Caller:
    """Somebody who asks again and again while engines change, and notes what was wrong."""

    def __init__(self, house: GatewayFixture, number: int) -> None:
        self._house = house
        self._number = number
        self.replies = 0
        self.wrong: list[str] = []
        self.engines: set[str] = set()
        self.over = asyncio.Event()
        self.asking = False  # a request of theirs is open

    async def talk(self) -> None:
        """Until it is over."""
        while not self.over.is_set():
            said = f"What is the capital of France? Question {self._number}.{self.replies}"
            body = self._house.body(stream=True, max_tokens=24, messages=[{"role": "user", "content": said}])
            self.asking = True
            answer = await self._house.ask(body)
            self.asking = False
            self.replies += 1
            self.engines.add(answer.headers["x-manners-engine"])
            if answer.status != 200:
                self.wrong.append(f"{answer.status} {answer.error}")
                continue
            frames = answer.frames
            ends = [c["finish_reason"] for f in frames[:-1] for c in f.get("choices", ())]
            if frames[-1] != "[DONE]" or not set(ends) & {"stop", "length"} or not answer.text:
                self.wrong.append(f"truncated: {frames[-2:]}")


@asynccontextmanager
async def callers(house: GatewayFixture, count: int) -> AsyncIterator[list[Caller]]:
    """So many callers, each with a stream open nearly always, until the block ends."""
    crowd = [Caller(house, number) for number in range(count)]
    tasks = [asyncio.create_task(caller.talk()) for caller in crowd]
    try:
        yield crowd
    finally:
        for caller in crowd:
            caller.over.set()
        await asyncio.gather(*tasks)
