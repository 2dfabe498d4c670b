"""Limits and budgets of one caller's key, as arithmetic on values. Pure: times are Unix seconds.

    begin (the head is here) -> reserve (the body is read: its cost is known) -> settle (the request is over, or cancelled)

A limit "a minute" is a token bucket: so much at once, then at an even pace (limit / 60 a second). The meter stores
what is used, which runs off with time; a key that was never used has used nothing, whatever its limits are.

Tokens are known when a reply is over. Until then they are reserved, so that parallel requests cannot all pass on the
same remainder; the difference is settled afterwards. Of a budget the most is reserved that a request can cost: a budget is
overrun by one reservation at most. Of a minute it is an estimate, at most the whole limit: such a request passes once
nothing else is used, and the next one waits longer.
"""

from dataclasses import dataclass
from math import ceil
from typing import Final, NamedTuple

from app.access.clock import DAY
from app.registry.values import UNLIMITED, KeyLimits, Meter

MINUTE: Final = 60.0
MOST: Final = 2**53
"""Tokens that are counted: an engine may state as many for every reply, and SQLite takes no number from 2**63 on."""
STEP: Final = 2
"""Days that a clock may be set back without a fresh day when they come again."""
_ROUNDING: Final = 1e-6
"""Of a sum of floats, in requests or tokens."""


@dataclass(frozen=True, slots=True)
class Excess:
    """Which limit is exceeded, by its name in KeyLimits, and in how many seconds to try again; None: never."""

    limit: str
    seconds: float | None


def run_off(limits: KeyLimits, meter: Meter, now: float) -> Meter:
    """The meter at a later time. A clock that was set back takes nothing away and gives nothing."""
    requests, tokens, at, of_day, today, total = meter
    minutes = max(now - at, 0.0) / MINUTE
    if requests:
        requests = max(requests - minutes * (limits.rpm or 0), 0.0)
    if tokens:
        tokens = max(tokens - minutes * (limits.tpm or 0), 0.0)
    day = int(now // DAY)
    if day > of_day:
        today = 0
    elif of_day - day <= STEP:
        day = of_day
    # Else the clock was far ahead for a while: no other day would begin until then.
    return Meter(requests, tokens, now, day, today, total)


def begin(
    limits: KeyLimits, meter: Meter, in_flight: int, reserved: int, now: float
) -> tuple[Meter, Excess | None]:
    """Count one more request, unless that exceeds a limit; the meter at `now`.

    `in_flight` are the key's open requests, `reserved` the tokens they have reserved.
    """
    if limits is UNLIMITED:
        return meter, None
    meter = run_off(limits, meter, now)
    if (excess := _overspent(limits, meter, reserved, now)) is not None:
        return meter, excess
    if limits.concurrency is not None and in_flight >= limits.concurrency:
        return meter, Excess("concurrency", 1.0)
    if limits.rpm is None:
        return meter, None
    over = meter.requests + 1 - limits.rpm
    if over > _ROUNDING:
        return meter, Excess("rpm", over * MINUTE / limits.rpm)
    return meter._replace(requests=meter.requests + 1), None


def _overspent(limits: KeyLimits, meter: Meter, reserved: int, now: float) -> Excess | None:
    if limits.budget is not None and meter.total + reserved >= limits.budget:
        return Excess("budget", None if meter.total >= limits.budget else 1.0)
    if limits.daily_budget is not None and meter.today + reserved >= limits.daily_budget:
        return Excess("daily_budget", DAY - now % DAY if meter.today >= limits.daily_budget else 1.0)
    return None


class Reservation(NamedTuple):
    """What is set aside for one request: of the budgets, and of the minute."""

    most: int = 0
    minute: int = 0


def reservation(limits: KeyLimits, body_bytes: int, reply: int) -> Reservation:
    """Of a request of so many bytes with a reply of at most so many tokens. A token has at least one byte, mostly four."""
    minute = 0 if limits.tpm is None else min(estimate(body_bytes, reply), limits.tpm)
    return Reservation(body_bytes + reply, minute)


def reserve(
    limits: KeyLimits, meter: Meter, reserved: int, wanted: Reservation, now: float
) -> tuple[Meter, Excess | None]:
    """Set this aside, unless that exceeds a limit. `reserved` are the tokens that the key's other requests have reserved."""
    if limits is UNLIMITED:
        return meter, None
    meter = run_off(limits, meter, now)
    excess = _overspent(limits, meter, reserved, now)
    if excess is None and limits.tpm is not None:
        over = meter.tokens + wanted.minute - limits.tpm
        excess = Excess("tpm", over * MINUTE / limits.tpm) if over > _ROUNDING else None
    return (meter if excess else meter._replace(tokens=meter.tokens + wanted.minute)), excess


def settle(limits: KeyLimits, meter: Meter, reserved: Reservation, used: int, now: float) -> Meter:
    """A request is over: it has used so many tokens instead of those that were reserved."""
    requests, tokens, at, day, today, total = run_off(limits, meter, now)
    held = 0.0 if limits.tpm is None else max(tokens + used - reserved.minute, 0.0)
    return Meter(requests, held, at, day, min(today + used, MOST), min(total + used, MOST))


def headers(limits: KeyLimits, meter: Meter, now: float) -> list[tuple[bytes, bytes]]:
    """OpenAI's `x-ratelimit-*`, of the limits a minute that the key has. `reset`: until nothing is used."""
    if limits.rpm is None and limits.tpm is None:
        return []
    meter = run_off(limits, meter, now)
    found: list[tuple[bytes, bytes]] = []
    for name, limit, used in (
        (b"requests", limits.rpm, meter.requests),
        (b"tokens", limits.tpm, meter.tokens),
    ):
        if limit is not None:
            left = max(int(limit - used + _ROUNDING), 0)
            found += [
                (b"x-ratelimit-limit-" + name, b"%d" % limit),
                (b"x-ratelimit-remaining-" + name, b"%d" % left),
                (b"x-ratelimit-reset-" + name, _duration(used * MINUTE / limit)),
            ]
    return found


def _duration(seconds: float) -> bytes:
    """As OpenAI writes it: 120ms, 1s, 6m0s."""
    if seconds < 1:
        return b"%dms" % ceil(seconds * 1000)
    whole = ceil(seconds)
    return b"%dm%ds" % divmod(whole, 60) if whole >= 60 else b"%ds" % whole


def estimate(body_bytes: int, reply: int) -> int:
    """Tokens that a request takes, about: four bytes of its body a token, and its reply."""
    return ceil(body_bytes / 4) + reply
