"""The soak: a real gateway over real engines, mixed callers and promotions, and whether it stays flat.

    python -m tests.reliability.soak --seconds 300

The exit code is 0 if no reply was lost and memory, tasks, descriptors and threads stay flat.
"""

import argparse
import asyncio
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import aiohttp

from app.config.config import Config, load
from tests.app.promotion.stage import ENGINES, signed, statement, tables
from tests.promotion.process import LOG, ROOT, Gateway, environment, serving, written
from tests.reliability.crowd import Crowd

REST_SECONDS = 8.0
"""How long everybody is silent before and after, so that what is held at rest can be seen."""
PROMOTE_EVERY = 25.0
CALLERS = 8
WARM_UP_REQUESTS = 2000
"""So many are asked, and two promotions end, before the time begins: what is allocated once is then allocated,
however slow the machine is."""
SAMPLES = "samples.jsonl"
WARM_UP = 0.3
"""Share of the time that is not judged: over an hour, caches and the allocator go on to fill in it."""
GROWTH = {"rss_mib": 8.0, "tasks": 8.0, "descriptors": 8.0, "threads": 1.5}
"""How much the line may climb from the end of the warm-up to the end of the run."""
AT_REST = {"tasks": 1.0, "descriptors": 2.0}
"""How much more may be held when everybody has gone than before anybody came."""


@dataclass(frozen=True)
class Held:
    """One measure: the line's climb over what is judged, and what is held at rest."""

    what: str
    median: float
    highest: float
    slope: float  # a minute
    climb: float
    before: float
    after: float

    @property
    def flat(self) -> bool:
        """Whether it stays within what is allowed."""
        return self.climb <= GROWTH[self.what] and self.after - self.before <= AT_REST.get(
            self.what, float("inf")
        )


def judge(
    samples: Sequence[Mapping[str, float]], before: Mapping[str, float], after: Mapping[str, float]
) -> list[Held]:
    """Each measure of the samples under load; `before` and `after` are those at rest."""
    start, end = samples[0]["t"], samples[-1]["t"]
    judged = [one for one in samples if one["t"] >= start + WARM_UP * (end - start)]
    times = [one["t"] for one in judged]
    found = []
    for what in GROWTH:
        values = [one[what] for one in judged]
        slope = statistics.linear_regression(times, values).slope
        climb = slope * (times[-1] - times[0])
        found.append(
            Held(
                what,
                statistics.median(values),
                max(values),
                round(slope * 60, 3),
                round(climb, 2),
                before[what],
                after[what],
            )
        )
    return found


async def promote(gateway: Gateway, engine: str, config: Config) -> str:
    """Promote on a sound report; the phase that it ended in."""
    baseline = next(name for name in ENGINES if name != engine)
    data = signed(config, statement(config, engine, baseline))
    _, report = await gateway.post("/admin/reports", data)
    body = {"model": "annie", "engine": engine, "report": report["digest"]}
    status, operation = await gateway.post("/admin/promote", body)
    assert status == 202, operation
    return str((await gateway.until(operation["id"], ""))["phase"])  # no step has that name: its end


def read(path: Path) -> list[dict[str, float]]:
    """All samples so far."""
    *lines, _ = path.read_text().split("\n")
    return [json.loads(line) for line in lines]


async def start(config: Path) -> asyncio.subprocess.Process:
    """The gateway, in a process of its own that counts itself."""
    samples = config.parent / SAMPLES
    with (config.parent / LOG).open("wb") as log:
        return await asyncio.create_subprocess_exec(
            sys.executable, "-m", "tests.reliability.watched", str(config), str(samples), cwd=ROOT,
            stdout=subprocess.PIPE, stderr=log, env=environment(config),
        )  # fmt: skip


async def soak(seconds: float) -> dict[str, Any]:
    """The figures of one run."""
    with tempfile.TemporaryDirectory() as folder:
        path = written(Path(folder), tables(Path(folder) / "state"))
        samples = path.parent / SAMPLES
        async with serving(path, start) as gateway:
            await asyncio.sleep(REST_SECONDS)
            before = read(samples)[-1]
            config = load(path)
            crowd, promotions, loaded = await _load(gateway, config, samples, seconds)
            await asyncio.sleep(REST_SECONDS)
            after = read(samples)[-1]
        assert gateway.process.returncode == 0, gateway.process.returncode
        log = (path.parent / LOG).read_text()
    held = judge(loaded, before, after)
    faults = [line for line in log.splitlines() if '"internal_error"' in line or "Traceback" in line]
    return {
        "seconds": round(loaded[-1]["t"] - before["t"], 1),
        "callers": CALLERS,
        "machine": f"{os.cpu_count()} cores, {platform.machine()}, Python {platform.python_version()}",
        "load_average": round(os.getloadavg()[0], 1),
        "requests": dict(crowd.kinds),
        "engines": dict(crowd.engines),
        "promotions": dict(promotions),
        "wrong": crowd.wrongs,
        "examples": crowd.wrong,
        "internal_errors": len(faults),
        "held": [{**asdict(one), "flat": one.flat} for one in held],
        "passed": not crowd.wrongs and not faults and all(one.flat for one in held),
    }


async def _load(
    gateway: Gateway, config: Config, samples: Path, seconds: float
) -> tuple[Crowd, Counter[str], list[dict[str, float]]]:
    """Everybody at once, and a promotion now and then; the samples taken after the warm-up."""
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as client:
        crowd, promotions = Crowd(gateway.url, client), Counter[str]()
        asking = [asyncio.create_task(crowd.caller(seed)) for seed in range(CALLERS)]
        for engine in ("large", "small"):
            promotions[await promote(gateway, engine, config)] += 1
        while crowd.kinds.total() < WARM_UP_REQUESTS:
            await asyncio.sleep(0.1)
        start, turn = time.monotonic(), 0
        warm = read(samples)[-1]["t"]
        while (left := start + seconds - time.monotonic()) > 0:
            if left > PROMOTE_EVERY / 2 and turn <= (time.monotonic() - start) // PROMOTE_EVERY:
                promotions[await promote(gateway, ("large", "small")[turn % 2], config)] += 1
                turn += 1
            await asyncio.sleep(min(1.0, left))
        loaded = [one for one in read(samples) if one["t"] > warm]
        crowd.over = True
        await asyncio.gather(*asking)
    return crowd, promotions, loaded


def main() -> int:
    """Run it, and write what was found."""
    ask = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    ask.add_argument("--seconds", type=float, default=300.0)
    found = asyncio.run(soak(ask.parse_args().seconds))
    print(json.dumps(found, indent=1))
    return 0 if found["passed"] else 1


if __name__ == "__main__":
    sys.exit(main())
