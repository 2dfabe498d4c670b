"""Watches a candidate in live traffic: its callers' replies, its state, and synthetic requests."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
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
        probe: Callable[[], Awaitable[object]],
    ) -> None:
        self._window, self._of, self._limits = window, (model, engine), limits
        self._down, self._probe = down, probe
        self._incumbent, self._beside = (model, incumbent), window.mark(model, incumbent)
        self._first = self._mark = window.switch(model, engine)
        self._state = self._fresh()
        self._suspicion: FailureReason | None = None  # the limit that live replies break, unconfirmed
        self._down_since = inf
        self._turns, self._begun, self._good = 0, -inf, -inf  # when a turn began last, and last a good one
        self._turn: object = None  # the evidence of the last one
        self._turn_is_due = asyncio.Event()
        self._now = asyncio.get_running_loop().time

    async def run(self, seconds: float) -> EffectEvidence:
        """Watch for so many seconds; the evidence.

        The watch ends only while the engine is up and takes requests, after it has served enough, and with a good answer to
        a synthetic request that was sent when the time was over. Otherwise it goes on for as long as `BakeLimits` says.

        Callers' replies alone decide nothing: what they show is a breach when a synthetic request, which is then sent
        at once, goes badly as well (`bake_slow`: begins later than the incumbent's usual replies). For `bake_errors` the
        circuit breaker's probe has decided already.

        Raises:
            BreachError: bake_leak, bake_raw_tool_call, bake_broken_template, bake_empty, bake_markdown, bake_loop,
                bake_errors, bake_slow, bake_gone, bake_probe or bake_unserved.
        """
        prober = asyncio.create_task(self._send_probes())
        try:
            left = await self._run(seconds, self._now() + seconds, prober)
        finally:
            prober.cancel()
            await asyncio.wait([prober])
            prober.cancelled() or prober.exception()  # marked as retrieved
        unconfirmed = self._suspicion and self._suspicion.code
        found = {"seconds": round(seconds - left, 2), "turns": self._turns, "unconfirmed": unconfirmed}
        return {**found, **bake.evidence(self._state)}

    async def _run(self, seconds: float, end: float, prober: asyncio.Task[None]) -> float:
        """Watch to the end; the seconds that were left then. Raises BreachError."""
        limits = self._limits
        while True:
            self._judge()
            fault, left = self._check(prober), end - self._now()
            if left <= 0.0:
                fault = fault or self._unfinished(end, may_wait=-left < seconds)
                if fault is None:
                    return left
                if -left > max(seconds, limits.extend_s):
                    raise BreachError(fault)
            await self._more(min(limits.look_s, left) if left > 0.0 else limits.look_s)

    async def _send_probes(self) -> None:
        """Send synthetic requests, one at a time: in turn, and when one is due."""
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(self._limits.probe_every_s):
                    await self._turn_is_due.wait()
            self._turn_is_due.clear()
            self._begun = self._now()
            self._turn = await self._probe()
            self._good = self._begun
            self._turns += 1

    def _fresh(self) -> bake.Bake:
        """No counts, and the limits by the incumbent's replies meanwhile, or by its latest if there are too few."""
        beside = self._window.after(*self._incumbent, self._beside)
        enough = len(beside) >= self._limits.least
        return bake.begin(self._limits, beside if enough else self._window.after(*self._incumbent))

    async def _more(self, seconds: float) -> None:
        """Wait for another reply, at most so long; for all of that time while a limit is broken already."""
        if bake.breach(self._state):
            return await asyncio.sleep(seconds)
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._window.more(*self._of, self._mark)

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
            if broken and (broken.code == "bake_errors" or self._is_slow(broken, now.usual)):
                raise BreachError(broken)
            if broken and self._suspicion is None:
                self._turn = None
                self._turn_is_due.set()
        self._suspicion = broken

    def _is_slow(self, live: FailureReason, usual: float | None) -> bool:
        first = self._turn.get("first_content_s") if isinstance(self._turn, Mapping) else None
        return live.code == "bake_slow" and first is not None and usual is not None and first > usual

    def _check(self, prober: asyncio.Task[None]) -> FailureReason | None:
        """Why the engine takes no requests. Raises BreachError: it is gone, or answered a synthetic request badly."""
        error = prober.exception() if prober.done() else None
        if isinstance(error, EffectError):
            message = f"a synthetic turn went badly: {error.fault.message}"
            if (live := self._suspicion) is not None:
                raise BreachError(FailureReason(live.code, f"{live.message}; {message}"))
            raise BreachError(FailureReason("bake_probe", message))
        if error is not None:
            raise error
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
            self._turn_is_due.set()
        if self._good < end:
            return FailureReason("bake_probe", "a synthetic turn at the end of the bake was not answered")
        return bake.unserved(self._window.after(*self._of, self._first), self._limits.enough, may_wait)
