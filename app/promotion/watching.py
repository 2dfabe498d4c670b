"""The watch over a candidate that serves: the ear, the engine's state and a synthetic turn, until the time is up."""

import asyncio
from collections.abc import Awaitable, Callable

from app.promotion import bake
from app.promotion.bake import Bake, Limits
from app.promotion.outcome import Breach, EffectFailed
from app.promotion.phases import Fault
from app.telemetry.reply_window import ReplyWindow

Gone = Callable[[], str | None]
"""Why the engine is not up now, in words; None: it is."""
Probe = Callable[[], Awaitable[object]]
"""A synthetic turn, for hours in which nobody speaks. Raises EffectFailed if it went badly."""

SHIPPED = Limits()


def _never() -> str | None:
    return None


async def watch(
    reply_window: ReplyWindow,
    model: str,
    engine: str,
    incumbent: str | None,
    seconds: float,
    *,
    limits: Limits = SHIPPED,
    gone: Gone = _never,
    probe: Probe | None = None,
) -> dict[str, object]:
    """Listen to an engine's live replies for so many seconds; the evidence that it behaved.

    What was heard since the model was switched to it (`ReplyWindow.switched`) counts, too: the incumbent was
    drained meanwhile, and callers were served already.

    `engine` and `incumbent` are names, as the ear knows them; without an incumbent, or where it was
    hardly heard, only the absolute limits hold. Where there is too little traffic to tell, the
    synthetic turns are all that was seen, and `limits.quiet` says how it ends.

    Raises:
        Breach: bake_leak, bake_raw_tool_call, bake_empty, bake_markdown, bake_loop, bake_errors,
            bake_slow, bake_gone, bake_probe, or bake_quiet.
    """
    state = bake.begin(limits, reply_window.recent(model, incumbent) if incumbent else ())
    mark = reply_window.switch(model, engine)
    turns = _Turns(probe, limits.probe_every_s)
    clock = asyncio.get_running_loop().time
    began = seen = clock()
    try:
        state, mark = _listen(state, reply_window, model, engine, mark)
        while (now := clock()) < began + seconds:
            await _wait(reply_window, model, engine, mark, min(limits.look_s, began + seconds - now))
            state, mark = _listen(state, reply_window, model, engine, mark)
            turns.check()
            why = gone()
            seen = clock() if why is None else seen
            if why is not None and clock() - seen >= limits.gone_s:
                raise Breach(Fault("bake_gone", f"not up for {clock() - seen:.0f} s: {why:.200}"))
    finally:
        await turns.stop()
    if bake.too_few(state) and limits.quiet == "breach":
        raise Breach(
            Fault("bake_quiet", f"{state.heard} replies in {seconds:g} s are too few to tell anything")
        )
    return {"seconds": seconds, "turns": turns.done, **bake.evidence(state)}


async def _wait(reply_window: ReplyWindow, model: str, engine: str, mark: int, seconds: float) -> None:
    try:
        async with asyncio.timeout(seconds):
            await reply_window.more(model, engine, mark)
    except TimeoutError:
        pass


def _listen(state: Bake, reply_window: ReplyWindow, model: str, engine: str, mark: int) -> tuple[Bake, int]:
    """Take what was heard since the mark, reply by reply. Raises Breach."""
    for heard in reply_window.after(model, engine, mark):
        state = bake.hear(state, heard)
        if fault := bake.breach(state):
            raise Breach(fault)
    return state, reply_window.mark(model, engine)


class _Turns:
    """Synthetic turns beside the live ones, one at a time."""

    def __init__(self, probe: Probe | None, every_s: float) -> None:
        self.done = 0
        self._task = asyncio.create_task(self._run(probe, every_s)) if probe else None

    async def _run(self, probe: Probe, every_s: float) -> None:
        while True:
            await asyncio.sleep(every_s)
            await probe()
            self.done += 1

    def check(self) -> None:
        """Raises Breach if a turn went badly."""
        if self._task is not None and self._task.done():
            error = self._task.exception()
            if isinstance(error, EffectFailed):
                raise Breach(Fault("bake_probe", f"a synthetic turn went badly: {error.fault.message}"))
            assert error is not None  # it has no other end
            raise error

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
            if not self._task.cancelled():
                self._task.exception()  # looked at
