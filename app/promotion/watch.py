"""Watches a candidate in live traffic: its callers' replies, its state, and synthetic requests."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from math import inf

from app.promotion import bake
from app.promotion.bake import BakeLimits
from app.promotion.state_machine import BreachError, EffectError, EffectEvidence, FailureReason
from app.telemetry.reply_window import ReplyWindow


class ReplyWatch:
    """Watches an engine's live replies, its state and synthetic requests; `run` it once.

    Replies since the engine got its first requests (`ReplyWindow.switched`) count as well: callers were served while the
    incumbent was drained. With too few replies of the incumbent, only the absolute limits apply.

    `down` tells why the engine takes no requests now (None: it does); `probe` sends a synthetic request, and raises
    EffectError if the answer was bad.
    """

    def __init__(
        self,
        window: ReplyWindow,
        model: str,
        engine: str,
        incumbent: str,
        *,
        limits: BakeLimits,
        down: Callable[[], str | None],
        probe: Callable[[], Awaitable[EffectEvidence]],
    ) -> None:
        self._window, self._of, self._limits = window, (model, engine), limits
        self._down, self._probe = down, probe
        self._incumbent, self._beside = (model, incumbent), window.mark(model, incumbent)
        self._first = self._mark = window.switch(model, engine)
        self._state = self._fresh()
        self._suspicion: FailureReason | None = None  # the limit that live replies break, unconfirmed
        self._down_since = inf
        self._now = asyncio.get_running_loop().time
        self._turn: asyncio.Future[EffectEvidence] | None = (
            None  # a synthetic request that is not answered yet
        )
        self._turn_is_due = self._now() + limits.probe_every_s
        self._turns, self._begun, self._good = 0, -inf, -inf  # when a turn began last, and last a good one
        self._answered_after = 0.0  # seconds to the first content of the last one

    async def run(self, seconds: float) -> EffectEvidence:
        """Watch for so many seconds; the evidence.

        The watch ends only while the engine is up and takes requests, after it has served enough, and with a good answer to
        a synthetic request that was sent when the time was over. Otherwise it goes on for as long as `BakeLimits` says.

        Callers' replies alone decide nothing: what they show is a breach when a synthetic request, which is then sent
        at once, goes badly as well (`bake_slow`: begins later than the incumbent's usual replies). For `bake_errors` the
        circuit breaker's probe has decided already.

        Raises BreachError: `bake_` and a kind of fault (`bake.BOUNDS`), bake_gone, bake_probe or bake_unserved.
        """
        limits, end = self._limits, self._now() + seconds
        try:
            while True:
                self._judge()
                self._take_turns()
                fault, left = self._trouble(), end - self._now()
                if left <= 0.0:
                    fault = fault or self._unfinished(end, may_wait=-left < seconds)
                    if fault is None:
                        break
                    if -left > max(seconds, limits.extend_s):
                        raise BreachError(fault)
                await asyncio.sleep(min(limits.look_s, left) if left > 0.0 else limits.look_s)
        finally:
            if self._turn is not None:
                self._turn.cancel()
                await asyncio.gather(self._turn, return_exceptions=True)
        unconfirmed = self._suspicion and self._suspicion.code
        found = {"seconds": round(seconds - left, 2), "turns": self._turns, "unconfirmed": unconfirmed}
        return {**found, **bake.evidence(self._state)}

    def _fresh(self) -> bake.Bake:
        """No counts, and the limits by the incumbent's replies meanwhile, or by its latest if there are too few."""
        beside = self._window.after(*self._incumbent, self._beside)
        enough = len(beside) >= self._limits.least
        return bake.begin(self._limits, beside if enough else self._window.after(*self._incumbent))

    def _judge(self) -> None:
        """Count the replies that came. Raises BreachError for a limit that they break and a synthetic request confirms."""
        came = self._window.after(*self._of, self._mark)
        self._mark = self._window.mark(*self._of)
        for reply in came:
            self._state = bake.add(self._state, reply)
        broken = bake.breach(self._state)
        if broken is not None:  # unless the incumbent's replies of now show the same
            now = self._fresh()
            broken = bake.breach(replace(self._state, bounds=now.bounds))
            is_slow = broken and broken.code == "bake_slow" and self._answered_after > (now.usual or inf)
            if broken and (broken.code == "bake_errors" or is_slow):
                raise BreachError(broken)
            if broken and self._suspicion is None:
                self._answered_after, self._turn_is_due = 0.0, -inf
        self._suspicion = broken

    def _take_turns(self) -> None:
        """Send synthetic requests, one at a time, when they are due. Raises BreachError: one was answered badly."""
        if self._turn is not None and self._turn.done():
            turn, self._turn = self._turn, None
            try:
                first = turn.result().get("first_content_s")
            except EffectError as error:
                live, message = self._suspicion, f"a synthetic turn went badly: {error.fault.message}"
                fault = FailureReason(live.code, f"{live.message}; {message}") if live else None
                raise BreachError(fault or FailureReason("bake_probe", message)) from None
            self._answered_after = first if isinstance(first, float) else 0.0
            self._good, self._turns = self._begun, self._turns + 1
            self._turn_is_due = min(self._turn_is_due, self._now() + self._limits.probe_every_s)
        if self._turn is None and self._now() >= self._turn_is_due:
            self._begun, self._turn_is_due = self._now(), inf
            self._turn = asyncio.ensure_future(self._probe())

    def _trouble(self) -> FailureReason | None:
        """Why the engine takes no requests. Raises BreachError: it has not for too long."""
        if (why := self._down()) is None:
            self._down_since = inf
            return None
        self._down_since = min(self._down_since, self._now())
        gone = self._now() - self._down_since
        fault = FailureReason("bake_gone", f"takes no requests for {gone:.0f} s: {why:.200}")
        if gone >= self._limits.gone_s:
            raise BreachError(fault)
        return fault

    def _unfinished(self, end: float, may_wait: bool) -> FailureReason | None:
        """Why the watch may not end though its time is over; None: it may."""
        if self._begun < end:
            self._turn_is_due = -inf
        if self._good < end:
            return FailureReason("bake_probe", "a synthetic turn at the end of the bake was not answered")
        return bake.unserved(self._window.after(*self._of, self._first), self._limits.enough, may_wait)
