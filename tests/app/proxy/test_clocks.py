"""Each clock stops at its own event, and at no neighbour's; what was not served is in none."""

import asyncio
import time
from dataclasses import dataclass
from typing import Any

import pytest

from app.upstream.connection import EngineReply, ResponseHandler
from tests.app.house import GatewayFixture, Scrape, eventually, house
from tests.script import (
    DONE,
    Do,
    Hang,
    Head,
    Say,
    Step,
    Until,
    chunk,
    event,
    finish,
    role,
    text,
    thought,
    usage,
)
from tests.scripted_engine import Seen

pytestmark = pytest.mark.asyncio(loop_scope="module")

STEP = 0.08  # seconds between two events, by the clock of `paced`

TOKEN = "gen_ai_server_time_to_first_token_seconds"
CONTENT = "manners_time_to_first_content_seconds"
SENTENCE = "manners_time_to_first_sentence_seconds"
PER_TOKEN = "gen_ai_server_time_per_output_token_seconds"
DURATION = "gen_ai_server_request_duration_seconds"
GAP = "manners_stream_max_gap_seconds"
OVERHEAD = "manners_gateway_overhead_seconds"
LATENCIES = (TOKEN, CONTENT, SENTENCE, PER_TOKEN, DURATION, GAP, OVERHEAD)


class SteppedClock:
    """`time.perf_counter`, which stands still but for the steps of a script: every value has one right answer.

    The gateway's own timers run by the loop's clock, and so none of its deadlines is near.
    """

    def __init__(self) -> None:
        self.now = 0.0
        self.read: dict[EngineReply, int] = {}  # bytes of body by connection, of its present reply

    def __call__(self) -> float:
        return self.now

    def steps(self, count: float = 1.0) -> Do:
        """Once the gateway has read what was said, that much later."""

        async def step(sent: int) -> None:
            await eventually(lambda: sent in self.read.values() or not sent)
            self.now += count * STEP

        return Do(step)


clock = SteppedClock()


@pytest.fixture(autouse=True)
def stepped(monkeypatch: pytest.MonkeyPatch) -> None:
    """The gateway and its engine go by this clock, which follows what the gateway has read."""
    clock.now = time.perf_counter()
    clock.read.clear()
    send, deliver = EngineReply.send, EngineReply._deliver

    def sends(
        self: EngineReply, request: bytes, handler: ResponseHandler | None = None
    ) -> asyncio.Future[None]:
        clock.read[self] = 0
        return send(self, request, handler)

    def delivers(self: EngineReply) -> None:
        size = sum(map(len, self._parts)) if self._sink else 0
        deliver(self)
        clock.read[self] = clock.read.get(self, 0) + size

    monkeypatch.setattr(EngineReply, "send", sends)
    monkeypatch.setattr(EngineReply, "_deliver", delivers)
    monkeypatch.setattr(time, "perf_counter", clock)


def paced(**marks: bytes) -> tuple[Step, ...]:
    """Say each of these, a step apart, and note when."""
    steps: list[Step] = [Head()]
    for mark, data in marks.items():
        steps += [clock.steps(), Say(data, mark)]
    return (*steps, clock.steps(), Say(DONE, "done"))


PROGRESS = event({"choices": [{"index": 0, "delta": {}}], "prompt_progress": {"total": 9, "processed": 4}})
EMPTY = chunk({"content": "", "reasoning": None, "tool_calls": []})
NULLS = chunk({"role": "assistant", "content": None})
CONTINUOUS = usage(0)


@dataclass(frozen=True)
class Reading:
    """What the histograms gained by one request, and the times at which its engine spoke."""

    before: Scrape
    after: Scrape
    seen: Seen

    def count(self, name: str) -> float:
        """Observations."""
        return self.after(f"{name}_count") - self.before(f"{name}_count")

    def value(self, name: str) -> float:
        """The one observation."""
        assert self.count(name) == 1
        return self.after(f"{name}_sum") - self.before(f"{name}_sum")

    def stops_at(self, name: str, mark: str) -> None:
        """The clock's value is this event's time."""
        assert self.value(name) == pytest.approx(self.seen.marks[mark] - self.seen.arrived, abs=1e-6), mark


async def measure(home: GatewayFixture, *steps: Step, **fields: Any) -> Reading:
    """One request with this script, and what it left in the metrics."""
    before = await home.metrics()
    home.engine.play(*steps)
    answer = await home.ask(**fields)
    assert answer.status == 200
    await home.booked()
    return Reading(before, await home.metrics(), await home.engine.request())


THOUGHTFUL = paced(
    role=role(),
    nulls=NULLS,
    progress=PROGRESS,
    empty=EMPTY,
    usage_chunk=CONTINUOUS,
    thought=thought("Hmm, hm."),
    text=text("Good"),
    more=text(" morning"),
    sentence=text(". How"),
    rest=text(" are you?"),
    finish=finish(),
    usage=usage(3),
)


THINK: dict[str, Any] = {"chat_template_kwargs": {"enable_thinking": True}}


async def test_each_clock_stops_at_its_own_event(home: GatewayFixture) -> None:
    """Role, nulls, progress, empty deltas and usage stop none; a thought stops the first only."""
    reading = await measure(home, *THOUGHTFUL, stream=True, **THINK)
    reading.stops_at(TOKEN, "thought")
    reading.stops_at(CONTENT, "text")
    reading.stops_at(SENTENCE, "sentence")
    reading.stops_at(DURATION, "done")
    # (last token - first) / (tokens by the engine's count - 1), though there are more chunks than tokens
    marks = reading.seen.marks
    assert reading.value(PER_TOKEN) == pytest.approx((marks["rest"] - marks["thought"]) / 2, abs=1e-6)


async def test_a_reply_that_is_not_streamed_has_no_first_content(home: GatewayFixture) -> None:
    """It is seen all at once, at its end: in the voice's histograms it would only be a lie."""
    reading = await measure(home, *THOUGHTFUL, stream=False, **THINK)
    reading.stops_at(TOKEN, "thought")
    reading.stops_at(DURATION, "done")
    assert [reading.count(name) for name in (CONTENT, SENTENCE, GAP)] == [0, 0, 0]


async def test_a_cancelled_request_is_counted_and_enters_no_latency(home: GatewayFixture) -> None:
    """Even though it had stopped every clock."""
    before = await home.metrics()
    home.engine.play(Head(), Say(text("One sentence. Two")), Hang())
    async with home.begin() as response:
        await response.content.readany()
        response.close()
    assert (await home.booked())["outcome"] == "client_cancel"
    reading = Reading(before, await home.metrics(), await home.engine.request())
    assert [reading.count(name) for name in LATENCIES] == [0] * len(LATENCIES)
    counted = {"model": "annie", "engine": "scripted", "outcome": "client_cancel"}
    name = "manners_requests_total"
    assert reading.after(name, **counted) - before(name, **counted) == 1


async def test_time_in_the_queue_belongs_to_the_caller_and_not_to_the_overhead(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    """The clocks run from the request's last byte in; the gateway's own share is its work."""
    async with house(tmp_path_factory.mktemp("state"), concurrency=1) as home:
        both_are_here = asyncio.Event()
        home.engine.play(Until(both_are_here), *paced(a=text("One."), end=finish()))
        first = asyncio.create_task(home.ask(stream=True))
        await home.engine.request()
        home.engine.play(*paced(a=text("One."), end=finish()))
        second = asyncio.create_task(home.ask(stream=True))
        await eventually(lambda: home.gateway.proxy._queues["annie"].waiting == 1)
        both_are_here.set()
        await asyncio.gather(first, second)
        await home.booked()
        await home.booked()
        after = await home.metrics()
    assert after(f"{CONTENT}_sum") == pytest.approx(
        (1 + 3 + 1) * STEP
    )  # one waited for the other's three steps
    assert after(f"{OVERHEAD}_sum") == pytest.approx(0.0)
