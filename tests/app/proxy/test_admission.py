"""The turnstile: so many at once, so many waiting, first come first served, and no place lost."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.errors.tree import Busy
from app.proxy.admission import AdmissionQueue
from tests.app.house import GatewayFixture, eventually, house
from tests.script import Head, Say, Until, finish, text

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def settle() -> None:
    """Let everything that can run, run."""
    for _ in range(5):
        await asyncio.sleep(0)


class Machine:
    """A turnstile under test, and what must be true of it after every step."""

    def __init__(self, concurrency: int, queue: int) -> None:
        self.turnstile = AdmissionQueue(concurrency, queue)
        self.limits = (concurrency, queue)
        self.inside: dict[int, asyncio.Event] = {}  # who holds a place, and how it is told to leave
        self.tasks: dict[int, asyncio.Task[None]] = {}
        self.arrivals: list[int] = []
        self.entered: list[int] = []  # of those who came when no place was free, or others waited

    def arrive(self, number: int, patience: float) -> None:
        """Another caller."""
        self.arrivals.append(number)
        self.tasks[number] = asyncio.create_task(self._caller(number, patience))

    async def _caller(self, number: int, patience: float) -> None:
        must_wait = self.turnstile.waiting or self.turnstile.in_flight >= self.limits[0]
        try:
            await self.turnstile.enter(patience)
            try:
                # A place that is free may be taken before somebody knows of the one that was given.
                if must_wait:
                    self.entered.append(number)
                leave = self.inside[number] = asyncio.Event()
                try:
                    await leave.wait()
                finally:
                    del self.inside[number]
            finally:
                self.turnstile.leave()
        except Busy:
            pass

    def check(self) -> None:
        """The laws that hold at every moment."""
        concurrency, queue = self.limits
        assert len(self.inside) <= self.turnstile.in_flight <= concurrency
        assert self.turnstile.waiting <= queue
        assert not self.turnstile.waiting or self.turnstile.in_flight == concurrency
        assert self.entered == sorted(self.entered)

    async def end(self) -> None:
        """Everybody leaves: every place must be free, and usable."""
        while self.tasks:
            for event in list(self.inside.values()):
                event.set()
            await settle()
            self.tasks = {n: task for n, task in self.tasks.items() if not task.done()}
        assert (self.turnstile.in_flight, self.turnstile.waiting) == (0, 0)
        for _ in range(self.limits[0]):
            await self.turnstile.enter(0.01)


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("arrive"), st.sampled_from([0.0, 0.001, 5.0])),
        st.tuples(st.just("leave"), st.integers(0, 9)),
        st.tuples(st.just("cancel"), st.integers(0, 30)),
        st.tuples(st.just("tick"), st.integers(0, 3)),
        st.tuples(st.just("wait"), st.just(0.002)),
    ),
    max_size=40,
)


@settings(deadline=None, max_examples=150)
@given(concurrency=st.integers(1, 3), queue=st.integers(0, 4), steps=STEPS)
async def test_never_over_the_cap_and_never_a_lost_place(
    concurrency: int, queue: int, steps: list[tuple[str, float]]
) -> None:
    """Arrivals, leavings, cancels and impatience in any order, with any of them at one moment."""
    machine = Machine(concurrency, queue)
    for step, (kind, value) in enumerate(steps):
        if kind == "arrive":
            machine.arrive(step, value)
        elif kind == "leave" and machine.inside:
            list(machine.inside.values())[int(value) % len(machine.inside)].set()
        elif kind == "cancel" and machine.tasks:
            list(machine.tasks.values())[int(value) % len(machine.tasks)].cancel()
        elif kind == "tick":
            for _ in range(int(value)):
                await asyncio.sleep(0)
        elif kind == "wait":
            await asyncio.sleep(value)
        machine.check()
    await machine.end()


@asynccontextmanager
async def busy(home: GatewayFixture, count: int) -> AsyncIterator[asyncio.Event]:
    """`count` streams that run until the block, or the event, ends them."""
    done = asyncio.Event()
    home.engine.forget()
    home.engine.always(Head(), Say(text("One")), Until(done), Say(finish()))
    tasks = [asyncio.create_task(home.ask(stream=True)) for _ in range(count)]
    await home.engine.request(count)
    yield done
    done.set()
    await asyncio.gather(*tasks)


async def test_the_gateway_holds_a_place_until_the_end_of_the_stream(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    """Not until its headers: who comes meanwhile waits, and who comes after that is told when to return."""
    base = tmp_path_factory.mktemp("state")
    async with house(base, concurrency=2, queue=1) as home, busy(home, 2) as done:
        metrics = await home.metrics()
        assert metrics("manners_in_flight", model="annie") == 2
        waiting = asyncio.create_task(home.ask(stream=True))
        await eventually(lambda: home.gateway.proxy.in_flight == 3)
        assert (await home.metrics())("manners_queue_depth", model="annie") == 1
        picked = ("num_requests_running", "num_requests_waiting", "kv_cache_usage_perc")
        metrics = await home.metrics()
        assert [metrics(f"vllm:{name}") for name in picked] == [2, 1, 1.0], "for an endpoint picker"
        refused = await home.ask(stream=True)
        assert (refused.status, refused.error["code"], refused.error["type"]) == (
            429,
            "queue_full",
            "rate_limit_error",
        )
        assert refused.headers["retry-after"] == "1"
        assert refused.headers["x-manners-engine"] == "none"
        assert (await home.booked())["outcome"] == "busy"
        assert len(home.engine.requests) == 2
        done.set()
        assert (await waiting).status == 200
        for _ in range(3):
            assert (await home.booked())["outcome"] == "ok"
        assert home.is_quiet()


async def test_a_wait_in_vain_is_a_429_of_its_own(tmp_path_factory: pytest.TempPathFactory) -> None:
    """The queue is no place to sleep: its patience is the first-token deadline."""
    base = tmp_path_factory.mktemp("state")
    async with house(base, concurrency=1, queue=9, timeouts={"first_token": 0.2}) as home, busy(home, 1):
        answers = await asyncio.gather(*(home.ask(stream=stream) for stream in (True, False)))
        assert [(a.status, a.error["code"]) for a in answers] == [(429, "queue_timeout")] * 2
        assert all(a.headers["retry-after"] == "1" for a in answers)
        assert home.gateway.proxy.in_flight == 1
