"""Several gateways count limits and budgets together. The tests kill, pause and restart a real redis-server."""

import asyncio
import multiprocessing
import shutil
import signal
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from random import Random

import pytest
import redis

from app.access import shared
from app.access.accounts import Account, Admission, unix_now
from app.access.shared import SharedLimits
from app.registry.values import KeyLimits, Meter
from tests.app.access.shared_callers import PATIENT, SIX, RedisServer, account, gateway, opened
from tests.app.access.test_keys_live import add, counted
from tests.app.house import config, eventually, house, run
from tests.scale import PATIENCE, scaled


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[RedisServer]:
    monkeypatch.setattr(shared, "HEARTBEAT", 0.1)
    yield (it := RedisServer(tmp_path))
    it.kill()


@pytest.fixture
async def both(server: RedisServer) -> AsyncIterator[list[SharedLimits]]:
    """Two gateways that count together."""
    made = [SharedLimits(server.url + "?socket_timeout=2", lambda answers: None) for _ in range(2)]
    for one in made:
        await one.start()
    yield made
    for one in made:
        await one.stop()


@pytest.mark.slow
def test_processes_keep_one_limit_and_not_one_each(server: RedisServer) -> None:
    """Four gateways with ten callers each, at once: each limit lets six in, wherever they come."""
    spawn = multiprocessing.get_context("spawn")
    start, let_in = spawn.Barrier(4), spawn.Queue()
    for _ in range(4):
        spawn.Process(target=gateway, args=(server.url, start, let_in), daemon=True).start()
    found = [let_in.get(timeout=PATIENCE) for _ in range(4 * len(SIX))]
    assert {name: sum(count for of, count in found if of == name) for name in SIX} == dict.fromkeys(SIX, 6)


async def test_the_script_has_the_arithmetic_of_one_gateway(both: list[SharedLimits]) -> None:
    """The same steps of keys with any limits: the same is let in, refused and counted."""
    random, most = Random(1), {"rpm": 5, "tpm": 900, "concurrency": 4, "daily_budget": 2000, "budget": 3000}
    for number in range(scaled(30, 500)):
        limits = KeyLimits(
            **{key: random.choice([None, random.randint(1, top)]) for key, top in most.items()}
        )
        alone, other = (Account(f"k{number}", limits, Meter(day=1, today=9, total=500)) for _ in range(2))
        other.shared, open_now = both[0].account(other), list[tuple[Admission, Admission]]()
        for _ in range(25):
            if open_now and random.random() < 0.4:
                over = open_now.pop(random.randrange(len(open_now)))
                used = random.choice([0, over[0].reserved])
                for one in over:
                    one.end(used, unix_now())
            size = random.randint(1, 40), random.randint(1, 400)
            here, there = await opened(alone, *size), await opened(other, *size)
            if isinstance(here, Admission) and isinstance(there, Admission):
                open_now.append((here, there))
            else:
                assert here == there, limits
        await other.shared.ask()
        assert alone.meter[:2] == pytest.approx(other.meter[:2], abs=3)
        assert (alone.meter[3:], alone.reserved) == (other.meter[3:], other.reserved)


@pytest.mark.parametrize("fault", ["killed", "paused"])
async def test_each_spends_its_share(server: RedisServer, both: list[SharedLimits], fault: str) -> None:
    """Without Redis, under load. When it is back it has lost everything, or gets the messages of before late."""
    budget, most, spent = 6000, 20, [0, 0]
    accounts = [account(one, "kitchen", budget=budget) for one in both]

    async def load(number: int) -> None:
        while isinstance(one := await opened(accounts[number], 0, most), Admission):
            await asyncio.sleep(0)
            spent[number] += 10
            one.end(10, unix_now())

    callers = [asyncio.create_task(load(number)) for number in (0, 0, 1, 1)]
    await eventually(lambda: min(spent) > 200)
    left = budget - sum(spent)
    server.kill() if fault == "killed" else server.process.send_signal(signal.SIGSTOP)
    await asyncio.gather(*callers)
    assert not both[0].answers and abs(sum(spent) - budget) <= 4 * most and min(spent) > left / 3
    server.start() if fault == "killed" else server.process.send_signal(signal.SIGCONT)
    await eventually(lambda: both[0].answers and both[1].answers)
    for its in accounts * 2:
        await its.shared.ask()
    assert [its.meter.total for its in accounts] == [sum(spent)] * 2


@pytest.mark.slow
async def test_what_a_dead_gateway_held_is_free_again(both: list[SharedLimits]) -> None:
    its, other = (account(one, "kitchen", concurrency=1) for one in both)
    await its.shared.begin()
    assert await opened(other, 1, 1) == ("key_concurrency_exceeded", 0)
    assert both[0]._keeper is not None and both[0]._keeper.cancel()
    while not isinstance(await opened(other, 1, 1), Admission):
        await asyncio.sleep(0.01)


async def test_two_gateways_let_six_of_fourteen_in(server: RedisServer, tmp_path: Path) -> None:
    """Two whole gateways on copied state folders, as docs/scale-out.md has it. Redis learns no text and no key."""
    option = {"limits": server.url + PATIENT}
    async with house(tmp_path / "a") as alone:
        keys = await add(alone, "kitchen", rpm=6), await add(alone, "porch", daily_budget=60)
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    async with (
        house(tmp_path / "a", gateway=option) as first,
        run(config(first.engine, tmp_path / "b", gateway=option), first.engine) as second,
    ):
        first.engine.always(*counted(20, 11))
        for key, statuses in zip(keys, ([200] * 6 + [429] * 8, [200, 200, 429, 429]), strict=True):
            asked = [await (first, second)[number % 2].ask(headers=key) for number in range(len(statuses))]
            assert [answer.status for answer in asked] == statuses
        with redis.Redis(port=server.port) as client:
            held = b"".join(client.get(key) or b"" for key in client.scan_iter("*:key:*"))
        assert b"seen" in held and b"Hello" not in held
        assert not [key for key in keys if key["authorization"].encode()[7:] in held]
        assert (await second.metrics())("manners_limits_available") == 1
        server.kill()
        assert (await second.ask(headers=keys[1])).status == 429
        assert (await second.metrics())("manners_limits_available") == 0
