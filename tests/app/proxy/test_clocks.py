"""Each clock of a reply is in its histogram, and what was not served is in none. (Where each stops: tests/app/telemetry.)"""

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
LATENCIES = (TOKEN, CONTENT, SENTENCE, DURATION, PER_TOKEN, GAP, OVERHEAD)

THINK: dict[str, Any] = {"chat_template_kwargs": {"enable_thinking": True}}
THOUGHTFUL = (
    Head(), Say(role()), Say(thought("Hmm, hm.")), Say(text("Good morning. How")), Say(text(" are you?")),
    Say(finish()), Say(usage(3)), Say(DONE),
)  # fmt: skip


async def gains(home: GatewayFixture, before: Scrape) -> tuple[list[float], list[float]]:
    """Observations of each histogram since then, and their sums."""
    await home.booked()
    after = await home.metrics()

    def of(sample: str) -> list[float]:
        return [after(f"{name}_{sample}") - before(f"{name}_{sample}") for name in LATENCIES]

    return of("count"), of("sum")


async def test_a_streamed_reply_is_in_every_histogram_with_its_clocks_in_order(home: GatewayFixture) -> None:
    before = await home.metrics()
    home.engine.play(*THOUGHTFUL)
    assert (await home.ask(stream=True, **THINK)).status == 200
    counts, seconds = await gains(home, before)
    assert counts == [1] * len(LATENCIES)
    clocks = [round(one, 6) for one in seconds[:4]]
    assert clocks[0] > 0 and clocks == sorted(clocks)


async def test_a_reply_that_is_not_streamed_has_no_first_content(home: GatewayFixture) -> None:
    """It is seen all at once, at its end: in the voice's histograms it would only be a lie."""
    before = await home.metrics()
    home.engine.play(*THOUGHTFUL)
    assert (await home.ask(**THINK)).status == 200
    counts, _ = await gains(home, before)
    assert counts == [name not in (CONTENT, SENTENCE, GAP) for name in LATENCIES]


async def test_a_cancelled_request_is_counted_and_enters_no_latency(home: GatewayFixture) -> None:
    """Even though it had stopped every clock."""
    before = await home.metrics()
    home.engine.play(Head(), Say(text("One sentence. Two")), Hang())
    async with home.begin() as response:
        await response.content.readany()
        response.close()
    counts, _ = await gains(home, before)
    assert counts == [0] * len(LATENCIES)
    counted = {"model": "annie", "engine": "scripted", "outcome": "client_cancel"}
    name = "manners_requests_total"
    assert (await home.metrics())(name, **counted) - before(name, **counted) == 1
