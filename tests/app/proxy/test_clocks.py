"""Each clock of a reply is in its histogram, and what was not served is in none. (Where each stops: tests/app/telemetry.)"""

from dataclasses import dataclass
from typing import Any

import pytest

from tests.app.house import GatewayFixture, Scrape
from tests.script import DONE, Hang, Head, Say, finish, role, text, thought, usage

pytestmark = pytest.mark.asyncio(loop_scope="module")

TOKEN = "gen_ai_server_time_to_first_token_seconds"
CONTENT = "manners_time_to_first_content_seconds"
SENTENCE = "manners_time_to_first_sentence_seconds"
PER_TOKEN = "gen_ai_server_time_per_output_token_seconds"
DURATION = "gen_ai_server_request_duration_seconds"
GAP = "manners_stream_max_gap_seconds"
OVERHEAD = "manners_gateway_overhead_seconds"
LATENCIES = (TOKEN, CONTENT, SENTENCE, PER_TOKEN, DURATION, GAP, OVERHEAD)

THINK: dict[str, Any] = {"chat_template_kwargs": {"enable_thinking": True}}
THOUGHTFUL = (
    Head(), Say(role()), Say(thought("Hmm, hm.")), Say(text("Good morning. How")), Say(text(" are you?")),
    Say(finish()), Say(usage(3)), Say(DONE),
)  # fmt: skip


@dataclass(frozen=True)
class Reading:
    """What the histograms gained by one request."""

    before: Scrape
    after: Scrape

    def counts(self) -> list[float]:
        """Observations of each."""
        return [self.after(f"{name}_count") - self.before(f"{name}_count") for name in LATENCIES]

    def seconds(self, name: str) -> float:
        """The one observation."""
        return self.after(f"{name}_sum") - self.before(f"{name}_sum")


async def measure(home: GatewayFixture, stream: bool) -> Reading:
    """One request, and what it left in the metrics."""
    before = await home.metrics()
    home.engine.play(*THOUGHTFUL)
    assert (await home.ask(stream=stream, **THINK)).status == 200
    await home.booked()
    return Reading(before, await home.metrics())


async def test_a_streamed_reply_is_in_every_histogram_with_its_clocks_in_order(home: GatewayFixture) -> None:
    reading = await measure(home, stream=True)
    assert reading.counts() == [1] * len(LATENCIES)
    clocks = [round(reading.seconds(name), 6) for name in (TOKEN, CONTENT, SENTENCE, DURATION)]
    assert clocks[0] > 0 and clocks == sorted(clocks)


async def test_a_reply_that_is_not_streamed_has_no_first_content(home: GatewayFixture) -> None:
    """It is seen all at once, at its end: in the voice's histograms it would only be a lie."""
    reading = await measure(home, stream=False)
    assert dict(zip(LATENCIES, reading.counts(), strict=True)) == {
        **dict.fromkeys(LATENCIES, 1), **dict.fromkeys((CONTENT, SENTENCE, GAP), 0),
    }  # fmt: skip


async def test_a_cancelled_request_is_counted_and_enters_no_latency(home: GatewayFixture) -> None:
    """Even though it had stopped every clock."""
    before = await home.metrics()
    home.engine.play(Head(), Say(text("One sentence. Two")), Hang())
    async with home.begin() as response:
        await response.content.readany()
        response.close()
    assert (await home.booked())["outcome"] == "client_cancel"
    after = await home.metrics()
    assert Reading(before, after).counts() == [0] * len(LATENCIES)
    counted = {"model": "annie", "engine": "scripted", "outcome": "client_cancel"}
    name = "manners_requests_total"
    assert after(name, **counted) - before(name, **counted) == 1
