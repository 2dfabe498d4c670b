"""Watches a candidate in live traffic: its callers' replies, its state, and synthetic requests."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from math import inf
from typing import Final

from app.config.config import Promotion
from app.promotion import bake
from app.promotion.bake import BakeLimits
from app.promotion.state_machine import BreachError, EffectError, EffectEvidence, FailureReason
from app.telemetry.reply_window import ReplyOutcome, ReplyWindow

DownReason = Callable[[], str | None]
"""Why the engine takes no requests now; None: it does."""
Probe = Callable[[], Awaitable[object]]
"""A synthetic request. Raises EffectError if the answer was bad."""

BAKE_LIMITS: Final = BakeLimits()


def bake_limits(configured: Promotion, *, tests: int = 1) -> BakeLimits:
    """The shipped limits with what is configured; `alpha` is divided among so many tests of one promotion."""
    return replace(BAKE_LIMITS, alpha=BAKE_LIMITS.alpha / tests, slow_factor=configured.bake_slow_factor)


async def watch_replies(
    window: ReplyWindow,
    model: str,
    engine: str,
    incumbent: str,
    seconds: float,
    *,
    limits: BakeLimits,
    down: DownReason,
    probe: Probe,
) -> EffectEvidence:
    """Watch an engine's live replies, its state and synthetic requests for so many seconds.

    Replies since it got its first requests (`ReplyWindow.switched`) count as well: callers were served while the
    incumbent was drained. With too few replies of the incumbent, only the absolute limits apply.

    The watch ends only while the engine is up and takes requests, after it has served enough, and with a good answer to a
    synthetic request that was sent when the time was over. Otherwise it goes on for as long as `BakeLimits` says.

    Callers' replies alone decide nothing: what they show is a breach when a synthetic request, which is then sent
    at once, goes badly as well (`bake_slow`: begins later than the incumbent's usual replies). For `bake_errors` the
    circuit breaker's probe has decided already.

    Raises:
        BreachError: bake_leak, bake_raw_tool_call, bake_broken_template, bake_empty, bake_markdown, bake_loop,
            bake_errors, bake_slow, bake_gone, bake_probe or bake_unserved.
    """
    replies = _LiveReplies(window, model, engine, incumbent, limits)
    synthetic = _SyntheticRequests(probe, limits.probe_every_s)
    health = _Health(down, limits.gone_s)
    clock = asyncio.get_running_loop().time
    end = clock() + seconds
    fault: FailureReason | None = None

    def unfinished() -> FailureReason | None:
        may_wait = clock() < end + seconds
        return health.fault or synthetic.fault(end) or bake.unserved(replies.all, limits.enough, may_wait)

    try:
        synthetic.check(replies.judge(), replies.state.usual)
        while (left := end - clock()) > 0.0 or (fault := unfinished()):
            if fault and left < -max(seconds, limits.extend_s):
                raise BreachError(fault)
            await replies.more(min(limits.look_s, left if left > 0.0 else limits.look_s))
            synthetic.check(replies.judge(), replies.state.usual)
            health.check()
    finally:
        await synthetic.stop()
    lasted = round(seconds - min(left, 0.0), 2)
    found = {"seconds": lasted, "turns": synthetic.done, "unconfirmed": synthetic.suspicion}
    return {**found, **bake.evidence(replies.state)}


class _Health:
    """Whether a candidate takes requests; to take none for `gone_s` seconds is a breach."""

    def __init__(self, down: DownReason, gone_s: float) -> None:
        self._down, self._gone_s, self._since = down, gone_s, inf
        self.fault: FailureReason | None = None
        self.check()

    def check(self) -> None:
        """Look again. Raises BreachError."""
        now, why = asyncio.get_running_loop().time(), self._down()
        self._since = min(self._since, now) if why else inf
        gone = now - self._since
        self.fault = (
            FailureReason("bake_gone", f"takes no requests for {gone:.0f} s: {why:.200}") if why else None
        )
        if self.fault and gone >= self._gone_s:
            raise BreachError(self.fault)


class _LiveReplies:
    """A candidate's replies since it got its first requests, judged one by one."""

    def __init__(
        self, window: ReplyWindow, model: str, engine: str, incumbent: str, limits: BakeLimits
    ) -> None:
        self._window = window
        self._model = model
        self._engine = engine
        self._incumbent = incumbent
        self._limits = limits
        self._beside = window.mark(model, incumbent)
        self._since = self._mark = window.switch(model, engine)
        self.state = bake.begin(limits, self._usual())
        self._excused = False  # it broke a limit, and the incumbent does, too

    def _usual(self) -> Sequence[ReplyOutcome]:
        """The incumbent's replies meanwhile, if it serves beside the candidate and there are enough; else its latest."""
        beside = self._window.after(self._model, self._incumbent, self._beside)
        enough = len(beside) >= self._limits.least
        return beside if enough else self._window.recent(self._model, self._incumbent)

    @property
    def all(self) -> Sequence[ReplyOutcome]:
        """The replies since it got its first requests."""
        return self._window.after(self._model, self._engine, self._since)

    async def more(self, seconds: float) -> None:
        """Wait for another one, at most so long; for all of that time where a comparison has just excused it."""
        if self._excused:
            return await asyncio.sleep(seconds)
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._window.more(self._model, self._engine, self._mark)

    def judge(self) -> FailureReason | None:
        """Take in what came. Returns the limit that the replies break; None: they keep all."""
        mark = self._window.mark(self._model, self._engine)
        for reply in self._window.after(self._model, self._engine, self._mark):
            self.state = bake.add(self.state, reply)
            self._excused = self._excused or bake.breach(self.state) is not None
        self._mark = mark
        return self._compare() if self._excused else None

    def _compare(self) -> FailureReason | None:
        """Compare all of them with the incumbent's replies of now: a fault of both sides is not the candidate's."""
        state = bake.begin(self._limits, self._usual())
        for reply in self.all:
            state = bake.add(state, reply)
            if fault := bake.breach(state):
                return fault
        return None


class _SyntheticRequests:
    """Synthetic requests beside the live ones, one at a time."""

    def __init__(self, probe: Probe, every_s: float) -> None:
        self.done = 0
        self.suspicion: str | None = None  # the limit that live replies break, unconfirmed
        self._begun = self._good = -inf  # when the last one began, and the last that was answered well
        self._wanted = asyncio.Event()
        self._found: object = None  # the evidence of the last one
        self._task = asyncio.create_task(self._run(probe, every_s))

    async def _run(self, probe: Probe, every_s: float) -> None:
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(every_s):
                    await self._wanted.wait()
            self._wanted.clear()
            self._begun = asyncio.get_running_loop().time()
            self._found = await probe()
            self._good = self._begun
            self.done += 1

    def fault(self, end: float) -> FailureReason | None:
        """None if a request that began after this time was answered well; if none has begun, one begins."""
        if self._begun < end:
            self._wanted.set()
        if self._good >= end:
            return None
        return FailureReason("bake_probe", "a synthetic turn at the end of the bake was not answered")

    def check(self, live: FailureReason | None, usual: float | None) -> None:
        """Raises BreachError if a request was answered badly, or if it confirms what the live replies show.

        `live` is the limit that they break, `usual` the incumbent's median time to first content.
        """
        if live is not None:
            if live.code == "bake_errors" or self._is_slow(live, usual):
                raise BreachError(live)
            if self.suspicion is None:
                self._found = None
                self._wanted.set()
        self.suspicion = None if live is None else live.code
        error = self._task.exception() if self._task.done() else None
        if isinstance(error, EffectError):
            message = f"a synthetic turn went badly: {error.fault.message}"
            if live is not None:
                raise BreachError(FailureReason(live.code, f"{live.message}; {message}"))
            raise BreachError(FailureReason("bake_probe", message))
        if error is not None:
            raise error

    def _is_slow(self, live: FailureReason, usual: float | None) -> bool:
        first = self._found.get("first_content_s") if isinstance(self._found, Mapping) else None
        return live.code == "bake_slow" and first is not None and usual is not None and first > usual

    async def stop(self) -> None:
        self._task.cancel()
        await asyncio.wait([self._task])
        if not self._task.cancelled():
            self._task.exception()  # marked as retrieved
