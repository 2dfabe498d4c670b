"""The bake: what it notices, how soon, how seldom it cries wolf, and how it ends when nobody speaks."""

import asyncio
from dataclasses import replace
from functools import cache
from itertools import cycle
from typing import Any

import pytest
from msgspec import structs

from app.promotion import bake
from app.promotion.bake import BakeLimits
from app.promotion.state_machine import BreachError, EffectError, FailureReason
from app.promotion.watch import ReplyWatch
from app.telemetry.reply_window import ReplyOutcome, ReplyWindow
from tests.scale import PATIENCE

LIMITS = BakeLimits()
GOOD = ReplyOutcome("ok", True, frozenset(), 0.2)
LEAK = structs.replace(GOOD, breaches=frozenset({"leak"}))
FAILED = ReplyOutcome("failed")
LEFT = ReplyOutcome("other")


def spoken(waits: list[float]) -> list[ReplyOutcome]:
    return [structs.replace(GOOD, wait=wait) for wait in waits]


USUAL = spoken([0.1 + 0.002 * i for i in range(200)])
"""An incumbent: 100 to 500 ms, nine of ten within 460 ms."""


def baked(
    heard: list[ReplyOutcome], incumbent: list[ReplyOutcome] | None = None, limits: BakeLimits = LIMITS
) -> bake.Bake:
    state = bake.begin(limits, incumbent or [])
    for one in heard:
        state = bake.add(state, one)
    return state


def code(state: bake.Bake) -> str | None:
    fault = bake.breach(state)
    return fault.code if fault else None


# ----------------------------------------------------------------------------- what it promises


@cache
def chances(rate: float, within: int, kind: str) -> tuple[float, ...]:
    """The chance, exactly, that a model with this rate of faults was caught within 1, 2, ... replies."""
    empty = replace(bake.begin(LIMITS, []), slow_after=1.0)
    least, alive, caught, found = 1, {0: 1.0}, 0.0, []
    for n in range(1, within + 1):
        after: dict[int, float] = {}
        for bad, chance in alive.items():
            after[bad] = after.get(bad, 0.0) + chance * (1.0 - rate)
            after[bad + 1] = after.get(bad + 1, 0.0) + chance * rate
        while least <= n and bake.breach(replace(empty, counts={kind: (least, n)})) is None:
            least += 1
        caught += sum(chance for bad, chance in after.items() if bad >= least)
        alive = {bad: chance for bad, chance in after.items() if bad < least and chance > 1e-15}
        found.append(caught)
    return tuple(found)


@pytest.mark.parametrize("rate, replies", [(0.5, 11), (0.2, 42), (0.1, 110), (0.05, 306)])
def test_a_leaker_is_caught_within_so_many_replies_with_95_percent(rate: float, replies: int) -> None:
    chance = chances(rate, replies, "leak")
    assert chance[-2] < 0.95 <= chance[-1]


@pytest.mark.parametrize("kind", ["leak", "empty", "markdown", "slow"])  # one for each bound
def test_no_kind_takes_more_than_its_share_of_the_error(kind: str) -> None:
    assert chances(bake.BOUNDS[kind], 1000, kind)[-1] < LIMITS.alpha / bake.TESTS
    assert chances(0.001, 3000, "leak")[-1] < 1e-5


# --------------------------------------------------------------------------------- what it counts


def test_every_kind_has_its_code_and_says_its_numbers() -> None:
    for name in ("leak", "raw_tool_call", "broken_template", "empty", "markdown", "loop"):
        state = baked([structs.replace(GOOD, breaches=frozenset({name}))] * 10)
        fault = bake.breach(state)
        assert fault is not None and fault.code == f"bake_{name}" and "10 of 10" in fault.message
    assert code(baked([FAILED] * 10)) == "bake_errors"
    assert code(baked([GOOD] * 500)) is None
    assert "errors" not in baked([LEFT] * 500).counts


def test_what_the_incumbent_does_too_is_usual() -> None:
    """Half of this traffic asks for lists, and who answers with one is no worse than before."""
    listed = structs.replace(GOOD, breaches=frozenset({"markdown"}))
    assert code(baked([listed, GOOD] * 200, [listed, GOOD] * 100)) is None
    assert code(baked([listed] * 200, [listed, GOOD] * 100)) == "bake_markdown"
    assert code(baked([listed, GOOD] * 200)) == "bake_markdown"
    assert code(baked([FAILED, GOOD] * 100, [FAILED, GOOD] * 100)) is None
    assert code(baked([FAILED, GOOD] * 100, [FAILED, GOOD] * 10)) == "bake_errors"  # hardly heard
    assert code(baked([LEAK] * 10, [LEAK] * 500)) == "bake_leak"  # nothing excuses it


def test_twice_as_slow_is_noticed_and_a_tenth_slower_is_not() -> None:
    twice, tenth = (
        [structs.replace(one, wait=(one.wait or 0) * times) for one in USUAL] for times in (2.0, 1.1)
    )
    assert code(baked(USUAL, USUAL)) is None
    assert code(baked(tenth, USUAL)) is None
    assert code(baked(twice, USUAL)) == "bake_slow"
    assert code(baked([*USUAL[:95], *spoken([30.0] * 5)] * 4, USUAL)) is None
    assert code(baked(spoken([60.0] * 300), USUAL[: LIMITS.least - 1])) is None  # with nothing to compare
    assert code(baked(twice, USUAL, BakeLimits(slow_factor=1000.0))) is None


def test_callers_who_gave_up_before_the_first_word_are_counted_as_slow() -> None:
    """Else an engine that nobody waits for would look fast: only its quick replies would be seen."""
    late, early = (structs.replace(LEFT, wait=wait, shown=False) for wait in (5.0, 0.05))
    assert code(baked([late] * 30, USUAL)) == "bake_slow"
    assert "slow" not in baked([early] * 300, USUAL).counts  # it says neither the one nor the other


# -------------------------------------------------------------------------------------- watching replies

QUICK = BakeLimits(look_s=0.01, gone_s=0.03, probe_every_s=0.01, extend_s=0.1)
SELDOM = replace(QUICK, probe_every_s=10 * PATIENCE, extend_s=PATIENCE)


class Turns:
    """Synthetic turns: good ones that begin to answer after so long, or bad ones."""

    def __init__(self, first_content_s: float | None = 0.1, bad: bool = False, lasts: float = 0.0) -> None:
        self.evidence = {"first_content_s": first_content_s}
        self.bad, self.lasts, self.begun = bad, lasts, 0

    async def __call__(self) -> dict[str, float | None]:
        self.begun += 1
        await asyncio.sleep(self.lasts)
        if self.bad:
            raise EffectError(FailureReason("canary_failed", "a thought was said"))
        return self.evidence


async def watched(window: ReplyWindow, seconds: float, **more: Any) -> dict[str, Any]:
    """The evidence of a watch."""
    usual = {"limits": QUICK, "down": lambda: None, "probe": Turns()}
    return await ReplyWatch(window, "annie", "new", "old", **{**usual, **more}).run(seconds)


async def breached(
    window: ReplyWindow, *heard: ReplyOutcome, seconds: float = 10 * PATIENCE, **more: Any
) -> FailureReason:
    """The fault that a watch ends with, after these replies."""
    watching = asyncio.create_task(watched(window, seconds, **more))
    await asyncio.sleep(0)
    hear(window, "new", *heard)
    with pytest.raises(BreachError) as caught:
        async with asyncio.timeout(PATIENCE):
            await watching
    return caught.value.fault


def hear(window: ReplyWindow, engine: str, *heard: ReplyOutcome) -> ReplyWindow:
    for one in heard:
        window.add("annie", engine, one)
    return window


async def test_what_was_heard_since_the_switch_counts_and_nothing_before() -> None:
    window = hear(ReplyWindow(), "new", *[LEAK] * 100)
    window.switched("annie", "new")
    hear(window, "new", *[LEAK] * 9)
    window.switched("annie", "new")  # again, and it changes nothing
    assert (await watched(window, 0.02))["heard"] == 9
    window.switched("annie", "old")
    window.switched("annie", "new")
    assert (await watched(window, 0.02))["heard"] == 0


async def test_beside_the_candidate_the_incumbent_says_what_is_usual_now() -> None:
    """A fault of both sides is not the candidate's; a fault of the candidate alone is."""
    window = hear(ReplyWindow(), "old", *[GOOD] * 500)
    watching = asyncio.create_task(watched(window, 10 * PATIENCE))
    await asyncio.sleep(0)
    hear(window, "old", *[FAILED] * QUICK.least)
    hear(window, "new", *[FAILED] * 30)
    await asyncio.sleep(5 * QUICK.look_s)
    assert not watching.done()
    hear(window, "old", *[GOOD] * 10 * QUICK.least)
    with pytest.raises(BreachError, match="bake_errors"):
        async with asyncio.timeout(PATIENCE):
            await watching


async def test_an_engine_that_stays_away_is_a_breach_and_one_that_comes_back_is_not() -> None:
    fault = await breached(ReplyWindow(), down=lambda: "it was killed")
    assert fault.code == "bake_gone" and "it was killed" in fault.message
    blinks = cycle(["restarting", None])
    told = await watched(ReplyWindow(), 0.9, limits=replace(QUICK, gone_s=0.4), down=lambda: next(blinks))
    assert told["heard"] == 0


async def test_what_only_callers_replies_show_rolls_nothing_back() -> None:
    window, turns = ReplyWindow(), Turns()
    window.switched("annie", "new")
    told = await watched(hear(window, "new", *[LEAK] * 10), 0.05, limits=SELDOM, probe=turns)
    assert told["unconfirmed"] == "bake_leak" and turns.begun


async def test_what_a_turn_shows_as_well_ends_the_bake_at_once() -> None:
    for heard, limits, named in (([LEAK] * 10, SELDOM, "bake_leak"), ([], QUICK, "bake_probe")):
        fault = await breached(ReplyWindow(), *heard, limits=limits, probe=Turns(bad=True))
        assert fault.code == named and "a thought was said" in fault.message


async def test_a_slow_candidate_answers_turns_slowly_too_and_long_prompts_make_none_slow() -> None:
    window = hear(ReplyWindow(), "old", *USUAL)
    late = spoken([5.0] * 40)
    assert (await breached(window, *late, limits=SELDOM, probe=Turns(0.5))).code == "bake_slow"
    window = hear(ReplyWindow(), "old", *USUAL)
    window.switched("annie", "new")
    told = await watched(hear(window, "new", *late), 0.05, limits=SELDOM)
    assert told["unconfirmed"] == "bake_slow"


# ------------------------------------------------------------------------------------ how it may end


async def test_a_bake_does_not_end_while_the_candidate_takes_no_requests() -> None:
    """It froze shortly before the time was over, and its breaker is open."""
    clock = asyncio.get_running_loop().time
    frozen_at = clock() + 0.05
    fault = await breached(
        ReplyWindow(),
        seconds=0.1,
        limits=replace(QUICK, gone_s=0.2),
        down=lambda: "it does not answer" if clock() > frozen_at else None,
    )
    assert fault.code == "bake_gone"


async def test_a_bake_does_not_end_before_a_turn_at_its_end_was_answered() -> None:
    """Nobody asks, and nothing but such a turn shows that the candidate hangs."""
    seldom = replace(QUICK, probe_every_s=PATIENCE)
    fault = await breached(ReplyWindow(), seconds=0.05, limits=seldom, probe=Turns(lasts=PATIENCE))
    assert fault.code == "bake_probe"


@pytest.mark.parametrize(
    ("heard", "ends"),
    [
        ([], True),
        ([GOOD] * QUICK.enough, True),
        ([GOOD], True),
        ([LEFT], True),
        ([FAILED], False),
        ([FAILED, FAILED, GOOD], False),
    ],
)
async def test_a_bake_ends_only_after_callers_were_served(heard: list[ReplyOutcome], ends: bool) -> None:
    window = ReplyWindow()
    window.switched("annie", "new")
    hear(window, "new", *heard)
    if ends:
        waits = bake.unserved(heard, QUICK.enough, may_wait=True) is not None
        assert waits == (0 < len(heard) < QUICK.enough)
        await watched(window, 0.05)
    else:
        assert (await breached(window, seconds=0.05)).code == "bake_unserved"
