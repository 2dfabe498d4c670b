"""Accounting per caller's key, in memory: open requests, limits, budgets and usage. Times are Unix seconds, passed in.

    begin (the head is here) -> reserve (the body is read: its cost is known) -> end (the request is over, or cancelled)

A limit "a minute" is a token bucket: so much at once, then at an even pace (limit / 60 a second). The meter stores
what is used, which runs off with time; a key that was never used has used nothing, whatever its limits are.

Tokens are known when a reply is over. Until then they are reserved, so that parallel requests cannot all pass on the
same remainder; the difference is settled afterwards. Of a budget the most is reserved that a request can cost: a budget is
overrun by one reservation at most. Of a minute it is an estimate, at most the whole limit: such a request passes once
nothing else is used, and the next one waits longer. Each step is made without a pause between its check and its change.
"""

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from math import ceil
from typing import Any, Final, Literal

from app.errors.tree import KeyLimited
from app.registry.values import UNLIMITED, KeyLimits, KnownKey, Meter

ANONYMOUS = "anonymous"
"""The name of all callers if no keys are configured."""
MINUTE: Final = 60.0
DAY: Final = 86_400
MOST: Final = 2**53
"""Tokens that are counted: an engine may state as many for every reply, and SQLite takes no number from 2**63 on."""
STEP: Final = 2
"""Days that a clock may be set back without a fresh day when they come again."""
_ROUNDING: Final = 1e-6
"""Of a sum of floats, in requests or tokens."""
_MESSAGES = {
    "rpm": "the key {name!r} may send {limit} requests a minute",
    "tpm": "the key {name!r} may use {limit} tokens a minute",
    "concurrency": "the key {name!r} may have {limit} requests open at once",
    "daily_budget": "the key {name!r} has used up its {limit} tokens of this day (UTC)",
    "budget": "the key {name!r} has used up its {limit} tokens; ask an operator for a larger budget",
}

_BOOT: Final = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
"""The clock that no step of the wall clock moves; where the system has one, with the time that it was suspended."""


class SteadyClock:
    """Unix seconds (meters survive a restart) that follow a step of the wall clock at most once in a day that has passed."""

    def __init__(
        self,
        wall: Callable[[], float] = time.time,  # noqa: TID251
        elapsed: Callable[[], float] = lambda: time.clock_gettime(_BOOT),
    ) -> None:
        self._wall, self._elapsed = wall, elapsed
        self._began, self._at = wall(), elapsed()

    def __call__(self) -> float:
        passed = self._elapsed() - self._at
        if passed >= DAY:
            self._began, self._at, passed = self._wall(), self._at + passed, 0.0
        return self._began + passed


unix_now = SteadyClock()


@dataclass(slots=True, eq=False)
class Account:
    """The account of one key. `created` tells it from an earlier key of the same name; "" for a key of the configuration."""

    name: str
    limits: KeyLimits = UNLIMITED
    meter: Meter = Meter()
    created: str = ""
    in_flight: int = 0
    reserved: int = 0
    shared: Any = None  # its `app.access.shared.SharedAccount`, where several gateways count together

    def begin(self, now: float) -> "Admission":
        """Open a request, to be ended once. Raises KeyLimited."""
        limits = self.limits
        self.check_budgets(now)
        if limits.concurrency is not None and self.in_flight >= limits.concurrency:
            raise self.refusal("concurrency", 1.0)
        self.take("rpm", "requests", 1)
        self.in_flight += 1
        return Admission(self)

    def check_budgets(self, now: float) -> None:
        """Move the meter to this time, if there are limits. Raises KeyLimited."""
        if self.limits == UNLIMITED:
            return
        self.meter = meter = self.meter_at(now)
        use = {"budget": (meter.total, None), "daily_budget": (meter.today, DAY - now % DAY)}
        for name, (used, wait) in use.items():
            limit = getattr(self.limits, name)
            if limit is not None and used + self.reserved >= limit:
                raise self.refusal(name, wait if used >= limit else 1.0)

    def take(self, name: Literal["rpm", "tpm"], kind: Literal["requests", "tokens"], count: int) -> None:
        """Take so many of what a minute gives, if it is limited. Raises KeyLimited."""
        if (limit := getattr(self.limits, name)) is not None:
            used = getattr(self.meter, kind) + count
            if (over := used - limit) > _ROUNDING:
                raise self.refusal(name, over * MINUTE / limit)
            self.meter = self.meter._replace(**{kind: used})

    def settle(self, held: int, used: int, now: float) -> None:
        """A request has used so many tokens, instead of those of the minute that were held for it."""
        meter = self.meter_at(now)
        tokens = 0.0 if self.limits.tpm is None else max(meter.tokens + used - held, 0.0)
        today, total = min(meter.today + used, MOST), min(meter.total + used, MOST)
        self.meter = meter._replace(tokens=tokens, today=today, total=total)

    def meter_at(self, now: float) -> Meter:
        """The meter at a later time. A clock that was set back takes nothing away and gives nothing."""
        requests, tokens, at, of_day, today, total = self.meter
        minutes = max(now - at, 0.0) / MINUTE
        requests = max(requests - minutes * (self.limits.rpm or 0), 0.0)
        tokens = max(tokens - minutes * (self.limits.tpm or 0), 0.0)
        day = int(now // DAY)
        if day > of_day:
            today = 0
        elif of_day - day <= STEP:
            day = of_day
        # Else the clock was far ahead for a while: no other day would begin until then.
        return Meter(requests, tokens, now, day, today, total)

    def refusal(self, limit: str, after: float | None) -> KeyLimited:
        """The error for a limit that is exceeded; try again after so many seconds, or never."""
        seconds = None if after is None else max(ceil(after), 1)
        wait = "" if seconds is None else f": try again in {seconds} s"
        text = _MESSAGES[limit].format(name=self.name, limit=getattr(self.limits, limit))
        return KeyLimited(text + wait, f"key_{limit}_exceeded", retry_after=seconds)


def estimate(body_bytes: int, reply: int) -> int:
    """Tokens that a request takes, about: four bytes of its body a token, and its reply."""
    return ceil(body_bytes / 4) + reply


@dataclass(slots=True, eq=False)
class Admission:
    """An open request of an account. `reserved`: the most tokens that it can cost; `minute`: those held of a minute."""

    _account: Account
    minute: int = 0
    reserved: int = 0

    def reserve(self, body_bytes: int, reply: int, now: float) -> None:
        """Reserve the tokens that the request, or one more reply to it, may use. Raises KeyLimited."""
        account, most = self._account, body_bytes + reply  # a token has at least one byte
        account.check_budgets(now)
        if (tpm := account.limits.tpm) is not None:
            minute = min(estimate(body_bytes, reply), tpm)
            account.take("tpm", "tokens", minute)
            self.minute += minute
        account.reserved += most
        self.reserved += most

    def end(self, used: int, now: float) -> None:
        """Close the request: free its slot, and settle what it has used instead of what it reserved. Once only."""
        account = self._account
        account.in_flight -= 1
        account.reserved -= self.reserved
        account.settle(self.minute, used, now)
        if account.shared is not None:
            account.shared.settle(self.minute, used, now)


class Accounts:
    """The accounts of all keys, by name. `shared` makes that of an account."""

    def __init__(self, shared: Callable[[Account], Any] = lambda account: None) -> None:
        self._shared = shared
        self.known: dict[str, Account] = {}
        self._anonymous = Account(ANONYMOUS)

    def of(self, name: str | None) -> Account:
        """The account of a key; an unlimited one if no keys are configured."""
        return self.known.get(name or "", self._anonymous)

    def take(self, keys: Iterable[KnownKey], stored: Mapping[str, Meter]) -> None:
        """Replace the keys. Known keys keep their open requests and usage; new ones start with the stored usage."""
        known: dict[str, Account] = {}
        for key in keys:
            account = self.known.get(key.name)
            if account is None or account.created != key.created:
                account = Account(key.name, meter=stored.get(key.name, Meter()), created=key.created)
                if key.created:  # a configured key has no limits
                    account.shared = self._shared(account)
            account.limits = key.limits
            known[key.name] = account
        self.known = known
