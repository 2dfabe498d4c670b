"""What is heard of live replies: through a whole gateway, and what is kept of it."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from app.telemetry.clocks import Clocks
from app.telemetry.reply_window import KEPT, ReplyOutcome, ReplyWindow, ended_as, wait_of
from tests.app.house import GatewayFixture, eventually
from tests.app.proxy.test_failover import pair
from tests.scale import PATIENCE
from tests.script import CloseNow, Hang, Head, Say, reply, role, status, text

OK = ReplyOutcome("ok")


async def heard(home: GatewayFixture, *steps: Any, **more: Any) -> ReplyOutcome:
    """What the ear made of one reply."""
    reply_window = home.gateway.reply_window
    mark = reply_window.mark("annie", "scripted")
    home.engine.play(*steps)
    await home.ask(**more)
    await eventually(lambda: reply_window.mark("annie", "scripted") > mark)
    (one,) = reply_window.after("annie", "scripted", mark)
    return one


BREAKS_OFF = (Head(), Say(role()), Say(text("Hel")), CloseNow())
SAYS_500 = status(500)
PASSES, FAILS = None, (CloseNow(),)
WHOSE_FAULT = [
    (BREAKS_OFF, FAILS, "failed", True),
    (BREAKS_OFF, PASSES, "other", True),
    (SAYS_500, FAILS, "failed", False),
    (SAYS_500, PASSES, "other", False),
    (status(503, b"loading"), FAILS, "other", False),
]


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize("steps, probes, ended, judged", WHOSE_FAULT)
async def test_a_fault_counts_against_the_engine_if_a_probe_fails_too(
    home: GatewayFixture, steps: Any, probes: Any, ended: str, judged: bool
) -> None:
    """A bake must not roll a good engine back because one caller sends what no engine can take."""
    home.engine.probes = probes
    broken = await heard(home, *steps, stream=True)
    assert (broken.ended, broken.judged) == (ended, judged)


@pytest.mark.asyncio(loop_scope="module")
async def test_a_caller_who_gave_up_is_heard_with_how_long_it_waited(home: GatewayFixture) -> None:
    reply_window, mark = home.gateway.reply_window, home.gateway.reply_window.mark("annie", "scripted")
    home.engine.play(Head(), Say(role()), Hang())
    async with asyncio.timeout(PATIENCE):
        request = asyncio.create_task(home.ask(stream=True))
        await eventually(lambda: home.gateway.proxy.in_flight)
        request.cancel()
        await eventually(lambda: reply_window.mark("annie", "scripted") > mark)
    (one,) = reply_window.after("annie", "scripted", mark)
    assert one.ended == "other" and one.wait is not None and not one.shown


async def test_a_failover_is_heard_of_the_engine_that_failed(tmp_path: Path) -> None:
    async with pair(tmp_path) as (house, live, spare):
        live.play(*status(500))
        live.probes = (CloseNow(),)
        spare.play(*reply("Hello."))
        await house.ask(stream=True)
        await house.booked()
        await house.log.until(1, "breaker")
        failed, answered = (house.gateway.reply_window.after("annie", name) for name in ("live", "spare"))
        assert [one.ended for one in failed] == ["failed"]
        # Its clock ran while the other one failed.
        assert [(one.ended, one.wait) for one in answered] == [("ok", None)]


# --------------------------------------------------------------------------------------- the ear


def test_it_keeps_the_latest_and_counts_all() -> None:
    reply_window = ReplyWindow()
    for _ in range(KEPT + 10):
        reply_window.add("annie", "a", OK)
    assert (len(reply_window.after("annie", "a")), reply_window.mark("annie", "a")) == (KEPT, KEPT + 10)
    assert reply_window.after("annie", "a", KEPT + 8) == (OK, OK)
    assert len(reply_window.after("annie", "a", 0)) == KEPT
    assert reply_window.after("annie", "b") == reply_window.after("other", "a") == ()


@pytest.mark.parametrize(
    "outcome, code, ended",
    [
        ("ok", None, "ok"),
        ("timeout", "first_token_timeout", "failed"),
        ("timeout", "total_timeout", "other"),
        ("upstream_error", "reply_fully_filtered", "other"),
        ("upstream_error", "upstream_truncated", "failed"),
        ("upstream_error", "engine_busy", "other"),
        ("error", None, "other"),
        ("client_cancel", None, "other"),
        ("client_error", None, "other"),
    ],
)
def test_only_the_engines_own_failures_are_its_failures(outcome: str, code: str | None, ended: str) -> None:
    assert ended_as(outcome, code) == ended


def test_our_own_queue_is_not_the_engines_time() -> None:
    clocks = Clocks(10.0)
    assert wait_of(clocks, 0.5, None) == (None, True)
    assert wait_of(clocks, 0.5, 12.0) == (1.5, False)
    clocks.text("Hello", 11.0)
    assert wait_of(clocks, 0.5, None) == wait_of(clocks, 0.5, 12.0) == (0.5, True)
