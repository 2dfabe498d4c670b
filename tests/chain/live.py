"""The live part: one gateway, callers who stream all the while, and what happens to the engines meanwhile."""

import asyncio
import contextlib
import json
import os
import shutil
import signal
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from app.access.keys import read_admin_token
from app.cli.gateway_client import GatewayClient
from tests.bench.processes import Process, tree
from tests.chain.models import TRAINED_GGUF
from tests.chain.place import ChainError, Place
from tests.chain.record import Figures
from tests.chain.settings import BAD, MODELS, PTQ, SPARE, TRAINED
from tests.demo import leak
from tests.demo.crowd import Crowd, Heard, figures, spoken_since

STRANGER: Final = MODELS / "stranger-nano-q4_k_m" / "stranger-nano-q4_k_m.gguf"
START_SECONDS: Final = 900.0
"""The longest wait for an engine: a vLLM on a busy CPU takes minutes."""
REASON: Final = "the chain shows what becomes of a candidate that no gate has judged"


def live_part(place: Place) -> Figures:
    """Promote, break, recover. Raises ChainError if it cannot go on."""
    shutil.rmtree(place.base / "state" / "engines", ignore_errors=True)
    if BAD in place.setting.folders:
        shutil.rmtree(place.served(BAD), ignore_errors=True)  # an earlier run may have spoiled it
        shutil.copytree(place.models / TRAINED_GGUF, place.served(BAD))
    place.configure()
    return asyncio.run(Live(place).run())


class Live:
    """One run of the gateway."""

    def __init__(self, place: Place) -> None:
        self.place, self.crowd = place, Crowd(place.url, place.setting.callers)
        self.marks: list[tuple[str, float]] = []
        self.found: Figures = {}

    async def run(self) -> Figures:
        """From the gateway's start to its end."""
        async with gateway(self.place, "gateway") as process:
            self.process = process
            await self._until(lambda: self._is_up(SPARE), "the fallback")
            async with self.crowd:
                await self._acts()
                self._mark("end")
        return {**self.found, "streams": self._streams()}

    async def _acts(self) -> None:
        setting = self.place.setting
        self._mark("the fine-tune alone")
        await asyncio.sleep(setting.quiet)
        self._mark("PTQ asks to be promoted")
        self.found["refused"] = await self._refused()
        self._mark("the cured model on vLLM is promoted")
        self.found["promoted"] = await self._promoted()
        if BAD in setting.folders:
            self._mark("a bad one, by override")
            self.found["rolled back"] = await self._rolled_back()
        self._mark("vLLM is killed")
        self.found["killed"] = await self._killed()
        self._mark("vLLM is back")
        await asyncio.sleep(setting.quiet)
        audit = await asyncio.to_thread(self._client().call, "GET", "audit")
        self.found["audit"] = {"chain holds": audit["chain"]["ok"]}

    # ------------------------------------------------------------------------------------- acts

    async def _refused(self) -> Figures:
        code, said = await self._promote(PTQ, report=True)
        return {"exit": code, "code": said["error"]["code"]}

    async def _promoted(self) -> Figures:
        began = time.monotonic()
        code, ended = await self._promote(TRAINED, report=True)
        if ended.get("phase") != "succeeded":
            raise ChainError(f"the trained model was not promoted: {ended.get('error')}")
        return {"exit": code, "phase": ended["phase"], "seconds": round(time.monotonic() - began, 1)}

    async def _rolled_back(self) -> Figures:
        """A file that is overwritten with a stranger's weights while it serves: no restart tells of it."""
        target = next(self.place.served(BAD).glob("*.gguf"))
        patches = await asyncio.to_thread(leak.prepare, target, STRANGER)
        waives = {"model": "annie", "engine": BAD, "waives": ["report_missing"], "reason": REASON, "hours": 1}
        await asyncio.to_thread(self._client().call, "POST", "overrides", json=waives)
        spoiler = asyncio.create_task(self._spoil(lambda: leak.overwrite(target, patches)))
        began = time.monotonic()
        try:
            code, ended = await self._promote(BAD, report=False)
        finally:
            spoiler.cancel()
            await asyncio.wait([spoiler])
        moment = None if spoiler.cancelled() else spoiler.result()
        bad = spoken_since(self.crowd.heard, BAD, moment)
        return {
            "exit": code, "phase": ended.get("phase"), "code": (ended.get("error") or {}).get("code"),
            "seconds": round(time.monotonic() - began, 1),
            "seconds from the fault to its last word": None if moment is None or not bad else round(max(one.ended for one in bad) - moment, 1),
            "replies after the fault": len(bad), "live": await self._live(),
        }  # fmt: skip

    async def _spoil(self, overwrite: Callable[[], None]) -> float:
        while not await self._baking():
            await asyncio.sleep(0.1)
        await asyncio.sleep(self.place.setting.sound)
        overwrite()
        return time.monotonic()

    async def _baking(self) -> bool:
        status = await asyncio.to_thread(self._client().call, "GET", "status")
        under_way = status["models"]["annie"]["operation"]
        return bool(under_way and under_way["phase"] == "baking")

    async def _killed(self) -> Figures:
        """SIGKILL for vLLM's server; the fallback answers until another one is there."""
        # The interpreter may be a script that starts another one, so it is known by what that runs.
        program = " ".join(self.place.setting.vllm_program)
        server = [pid for pid in tree(self.process.pid) if f" {program} " in _line_of(pid)]
        if not server:
            raise ChainError("no vLLM runs below the gateway")
        while self.crowd.open < min(2, self.place.setting.callers):  # not between two questions
            await asyncio.sleep(0)
        open_ones, began = self.crowd.open, time.monotonic()
        for pid in server:
            with contextlib.suppress(ProcessLookupError):  # the guard was faster
                os.kill(pid, signal.SIGKILL)
        await self._until(
            lambda: any(one.engine == SPARE and one.opened > began for one in self.crowd.heard),
            "the fallback's answer",
        )
        first = min(one.ended for one in self.crowd.heard if one.engine == SPARE and one.opened > began)
        await self._until(
            lambda: any(one.engine == TRAINED and one.opened > first for one in self.crowd.heard),
            "vLLM's return",
        )
        back = min(one.opened for one in self.crowd.heard if one.engine == TRAINED and one.opened > first)
        since = [one for one in self.crowd.heard if began <= one.ended]
        return {
            "streams open at the kill": open_ones,
            "truncated": sum(one.end == "truncated" for one in since),
            "lost": sum(one.end == "lost" for one in since),
            "answered by the fallback": sum(one.engine == SPARE and one.end == "whole" for one in since),
            "seconds until the fallback had answered": round(first - began, 1),
            "seconds until vLLM answered again": round(back - began, 1),
        }  # fmt: skip

    # --------------------------------------------------------------------------------- machinery

    async def _promote(self, engine: str, *, report: bool) -> tuple[int, Any]:
        """`manners promote`: its exit code, and the operation as it ended or the error."""
        paper = ("--report", self.place.base / f"gate-{engine}" / "report.json") if report else ()
        words = ("promote", "annie", engine, *paper, "--config", self.place.config, "--json")
        code, said, _ = await asyncio.to_thread(
            lambda: self.place.run(f"promote-{engine}", *words, allowed=(0, 1))
        )
        return code, json.loads(said)

    def _mark(self, name: str) -> None:
        self.marks.append((name, time.monotonic()))

    def _client(self) -> GatewayClient:
        token = read_admin_token(None, self.place.base / "state")
        assert token is not None  # the gateway made it before it was ready
        return GatewayClient(self.place.admin, token)

    def _is_up(self, name: str) -> bool:
        engines = self._client().call("GET", "engines")["engines"]
        return any(one["name"] == name and one["state"] == "ready" for one in engines)

    async def _live(self) -> str:
        status = await asyncio.to_thread(self._client().call, "GET", "status")
        return str(status["models"]["annie"]["live"])

    async def _until(self, true: Callable[[], bool], what: str) -> None:
        for _ in range(int(START_SECONDS / 0.2)):
            if await asyncio.to_thread(true):
                return
            await asyncio.sleep(0.2)
        raise ChainError(f"{what} did not come in {START_SECONDS:.0f} s")

    def _streams(self) -> list[Figures]:
        """Counts by stretch of time, and by engine."""
        ends = [moment for _, moment in self.marks[1:]]
        parts = [
            _counted(name, self.crowd.between(begin, end))
            for (name, begin), end in zip(self.marks, ends, strict=False)
        ]
        return [*parts, _counted("all", self.crowd.heard)]


def _counted(name: str, heard: list[Heard]) -> Figures:
    found = asdict(figures(heard))
    times = {key: None if found[key] is None else round(found[key]) for key in ("p50", "p95")}
    by = Counter(one.engine for one in heard)
    why = Counter(one.why[:160] for one in heard if one.end != "whole")
    return {"name": name, **found, **times, "by engine": dict(sorted(by.items())), "why": dict(why)}


def _line_of(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return ""


@asynccontextmanager
async def gateway(place: Place, log: str) -> AsyncIterator[Process]:
    """`manners serve`, ready."""
    process = Process(
        place.command("serve", "--config", place.config), place.logs / f"{log}.log", place.environment
    )
    try:
        if why := await process.until_ready(f"{place.url}/readyz", START_SECONDS):
            raise ChainError(f"the gateway {why}")
        yield process
    finally:
        process.stop()
