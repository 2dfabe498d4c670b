"""Limits and budgets of a key: arithmetic on values, with time as a value."""

import time
from contextlib import suppress
from dataclasses import replace
from math import ceil
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from app.access.accounts import _BOOT, ANONYMOUS, DAY, MINUTE, Account, Accounts, Admission, SteadyClock
from app.errors.tree import KeyLimited
from app.registry.values import KeyLimits, KnownKey, Meter

NOON = 20_000 * DAY + 43_200.0

steps = st.lists(st.floats(0, 90, allow_nan=False), min_size=1, max_size=60)


def refused(account: Account, now: float) -> KeyLimited | None:
    """Begin a request at this time, and end it at once."""
    try:
        account.begin(now).end(0, now)
    except KeyLimited as error:
        return error
    return None


@given(steps, st.integers(1, 20))
def test_never_more_than_twice_the_limit_in_a_minute_and_never_faster_in_the_long_run(
    pauses: list[float], rpm: int
) -> None:
    """A bucket that is full may be emptied at once, and fills at an even pace."""
    account, now = Account("a", KeyLimits(rpm=rpm)), NOON
    passed: list[float] = []
    for pause in pauses:
        now += pause
        if refused(account, now) is None:
            passed.append(now)
    for at in passed:
        assert sum(at <= one < at + MINUTE for one in passed) <= 2 * rpm
    assert len(passed) <= rpm + (now - NOON) * rpm / MINUTE + 1


@given(steps, st.integers(1, 20))
def test_retry_after_is_neither_too_short_nor_longer_than_needed(pauses: list[float], rpm: int) -> None:
    """At the second that is told it passes, and a second before it does not."""
    account, now = Account("a", KeyLimits(rpm=rpm)), NOON
    for pause in pauses:
        now += pause / 30
        if (error := refused(account, now)) is not None:
            assert error.retry_after is not None
            for seconds, passes in ((error.retry_after, True), (error.retry_after - 1.01, False)):
                later = Account("a", account.limits, account.meter)
                assert (refused(later, now + max(seconds, 0)) is None) == passes


BUDGET, A_DAY = 600, 300


class Callers(RuleBasedStateMachine):
    """Many callers of one key, whose heads, bodies and ends come in any order while the time goes on."""

    def __init__(self) -> None:
        super().__init__()
        self.account, self.now = Account("kitchen"), NOON
        self.heads: list[Admission] = []
        self.bodies: list[Admission] = []
        self.used = self.most = 0
        self.days: dict[int, int] = {}

    @initialize(tpm=st.sampled_from((None, 300)))
    def limit(self, tpm: int | None) -> None:
        self.account.limits = KeyLimits(budget=BUDGET, daily_budget=A_DAY, tpm=tpm, concurrency=8)

    @rule()
    def begin(self) -> None:
        for _ in range(8):
            with suppress(KeyLimited):
                self.heads.append(self.account.begin(self.now))

    @precondition(lambda self: self.heads)
    @rule(order=st.randoms(), sizes=st.lists(st.integers(100, 400), min_size=3, max_size=8))
    def reserve(self, order: Random, sizes: list[int]) -> None:
        order.shuffle(self.heads)
        for size in sizes[: len(self.heads)]:
            one = self.heads.pop()
            try:
                one.reserve(size // 4, size, self.now)
            except KeyLimited:
                one.end(0, self.now)
            else:
                self.most = max(self.most, one.reserved)
                self.bodies.append(one)

    @precondition(lambda self: self.heads or self.bodies)
    @rule(order=st.randoms(), parts=st.lists(st.sampled_from((1.0, 0.5, 0.0)), min_size=3, max_size=8))
    def settle_or_cancel(self, order: Random, parts: list[float]) -> None:
        """With part 0 it is cancelled, as is one whose body never comes."""
        order.shuffle(self.bodies)
        for part in parts:
            if part and self.bodies:
                one = self.bodies.pop()
            elif self.heads:
                one = self.heads.pop()
            else:
                continue
            used, day = int(one.reserved * part), int(self.now // DAY)
            one.end(used, self.now)
            self.used += used
            self.days[day] = self.days.get(day, 0) + used

    @rule(seconds=st.sampled_from((1, 60, DAY / 2)))
    def wait(self, seconds: float) -> None:
        self.now += seconds

    @invariant()
    def spent_never_exceeds_a_budget_by_more_than_one_reservation(self) -> None:
        assert self.account.meter.total == self.used <= BUDGET + self.most
        assert all(used <= A_DAY + self.most for used in self.days.values())

    @invariant()
    def what_is_open_is_what_is_held(self) -> None:
        assert self.account.in_flight == len(self.heads) + len(self.bodies) <= 8
        assert self.account.reserved == sum(one.reserved for one in self.bodies)
        assert self.account.meter.tokens >= 0


TestCallers = Callers.TestCase


def test_heads_first_and_bodies_later_spend_a_budget_once() -> None:
    """What a request costs is known with its body, and not when its head is let in."""
    account = Account("kitchen", KeyLimits(daily_budget=1000))
    open_now = [account.begin(NOON) for _ in range(24)]
    passed = []
    for one in open_now:
        with suppress(KeyLimited):
            one.reserve(100, 900, NOON)
            passed.append(one)
    assert len(passed) == 1


def test_a_request_larger_than_the_limit_passes_when_nothing_else_is_used() -> None:
    """Otherwise it could never be served."""
    account = Account("kitchen", KeyLimits(tpm=100))
    one = account.begin(NOON)
    one.reserve(0, 5000, NOON)
    one.end(400, NOON)
    with pytest.raises(KeyLimited) as caught:
        account.begin(NOON).reserve(0, 1, NOON)
    assert caught.value.retry_after == ceil(301 * MINUTE / 100)


@pytest.mark.parametrize(
    "limits, meter, in_flight, reserved, excess",
    [
        (KeyLimits(), Meter(total=10**12), 999, 0, None),
        (KeyLimits(concurrency=2), Meter(), 1, 0, None),
        (KeyLimits(concurrency=2), Meter(), 2, 0, ("concurrency", 1)),
        (KeyLimits(budget=100), Meter(total=99), 0, 0, None),
        (KeyLimits(budget=100), Meter(total=100), 0, 0, ("budget", None)),
        (KeyLimits(budget=100), Meter(total=60), 1, 40, ("budget", 1)),
        (KeyLimits(daily_budget=100), Meter(day=20_000, today=100), 0, 0, ("daily_budget", 43_200)),
        (KeyLimits(daily_budget=100), Meter(day=19_999, today=100), 0, 0, None),
        (KeyLimits(daily_budget=100), Meter(day=20_000, today=60), 1, 40, ("daily_budget", 1)),
        (KeyLimits(rpm=6), Meter(requests=6, at=NOON), 0, 0, ("rpm", 10)),
        (KeyLimits(rpm=6), Meter(requests=6, at=NOON - 10), 0, 0, None),
        (KeyLimits(rpm=6), Meter(requests=6, at=NOON + 3600), 0, 0, ("rpm", 10)),
    ],
    ids=[
        "no limit", "a place left", "no place left", "one token left", "used up", "reserved", "used up today",
        "used up yesterday", "reserved today", "six a minute", "ten seconds later", "the clock was set back",
    ],
)  # fmt: skip
def test_each_limit_is_kept(
    limits: KeyLimits, meter: Meter, in_flight: int, reserved: int, excess: tuple[str, int | None] | None
) -> None:
    """At noon. What is only reserved may come free at any time; a budget that is used up does not."""
    account = Account("kitchen", limits, meter)
    account.in_flight, account.reserved = in_flight, reserved
    error = refused(account, NOON)
    assert (error and (error.code, error.retry_after)) == (
        excess and (f"key_{excess[0]}_exceeded", excess[1])
    )
    assert error is None or "the key 'kitchen'" in error.message


def test_a_clock_that_was_far_ahead_for_a_while_stops_no_day() -> None:
    """A host without a battery begins in another year, and is put right while keys are in use."""
    account = Account("a", KeyLimits(daily_budget=100))
    account.settle(0, 40, NOON + 30 * 365 * DAY)
    account.settle(0, 60, NOON)
    error = refused(account, NOON)
    assert error is not None and error.retry_after == 43_200
    assert refused(account, NOON + DAY) is None
    assert account.meter.total == 100


def test_a_clock_that_steps_back_and_forth_gives_no_fresh_day() -> None:
    """The day that it stepped to comes once."""
    account = Account("a", KeyLimits(daily_budget=100))
    for _ in range(5):
        for now in (NOON + DAY, NOON):
            account.settle(0, 20, now)
    assert account.meter.today == 200
    assert refused(account, NOON + DAY) is not None
    assert refused(account, NOON + 2 * DAY) is None


def test_a_step_of_the_wall_clock_is_followed_once_a_day() -> None:
    """While the gateway runs, a day passes with the time that passes, whatever the clock is set to."""
    wall, passed = NOON, 0.0
    clock = SteadyClock(lambda: wall, lambda: passed)
    for step in (30 * 365 * DAY, -DAY, 5 * DAY):
        wall, passed = NOON + step, passed + 60
        assert clock() == NOON + passed
    passed = DAY
    assert clock() == wall
    wall += DAY
    assert clock() == wall - DAY
    assert _BOOT == time.CLOCK_BOOTTIME  # it also passes while a laptop sleeps


def test_a_key_that_is_replaced_begins_anew_and_one_that_stays_goes_on() -> None:
    """By when it was made: a new key of an old name is another one."""
    accounts = Accounts()
    first = KnownKey(name="a", digest="", created="t1", limits=KeyLimits(rpm=5))
    accounts.take([first], {"a": Meter(total=3)})
    held = accounts.of("a")
    assert held.meter.total == 3
    accounts.take([replace(first, limits=KeyLimits(rpm=9))], {"a": Meter(total=0)})
    assert accounts.of("a") is held
    assert held.limits.rpm == 9
    accounts.take([replace(first, created="t2")], {})
    assert accounts.of("a").meter.total == 0
    assert accounts.of("gone").name == ANONYMOUS
