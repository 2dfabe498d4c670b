"""The soak: a real gateway over real engines, mixed callers and promotions, and whether it stays flat.

    python -m tests.reliability.soak --seconds 300

The exit code is 0 if no reply was lost and memory, tasks, descriptors and threads stay flat.
"""

import argparse
import asyncio
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import aiohttp

from app.config.config import Config, load
from tests.app.promotion.stage import ENGINES, signed, statement, tables
from tests.promotion.process import ROOT, TOKEN, Gateway, written
from tests.reliability.crowd import Crowd
from tests.reliability.verdict import judge

REST_SECONDS = 8.0
"""How long everybody is silent before and after, so that what is held at rest can be seen."""
PROMOTE_EVERY = 25.0
CALLERS = 8
WARM_UP_REQUESTS = 2000
"""So many are asked, and two promotions end, before the time begins: what is allocated once is then allocated,
however slow the machine is."""
SAMPLES = "samples.jsonl"


class Watched(Gateway):
    """The gateway, in a process of its own that counts itself."""

    async def promote(self, engine: str, config: Config) -> str:
        """Promote on a sound report; the phase that it ended in."""
        baseline = next(name for name in ENGINES if name != engine)
        data = signed(config, statement(config, engine, baseline))
        _, report = await self.post("/admin/reports", data)
        body = {"model": "annie", "engine": engine, "report": report["digest"]}
        status, operation = await self.post("/admin/promote", body)
        assert status == 202, operation
        return str((await self.until(operation["id"], ""))["phase"])  # no step has that name: its end


def read(path: Path) -> list[dict[str, float]]:
    """All samples so far."""
    *lines, _ = path.read_text().split("\n")
    return [json.loads(line) for line in lines]


@asynccontextmanager
async def watched(folder: Path) -> AsyncIterator[Watched]:
    """Start it and wait until it is ready; afterwards it must end with 0."""
    path, samples = written(folder, tables(folder / "state")), folder / SAMPLES
    clean = {k: v for k, v in os.environ.items() if not k.startswith("MANNERS_")}
    with (folder / "log.jsonl").open("wb") as log:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "tests.reliability.watched", str(path), str(samples), cwd=ROOT,
            stdout=subprocess.PIPE, stderr=log, env={**clean, "MANNERS_ADMIN_TOKEN": TOKEN},
        )  # fmt: skip
    assert process.stdout is not None
    printed = b""
    try:
        async with asyncio.timeout(120):
            while b"\n\n  curl" not in printed:
                line = await process.stdout.readline()
                assert line, (printed, (folder / "log.jsonl").read_text()[-2000:])
                printed += line
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as client:
            yield Watched(process, printed.decode(), client)
    finally:
        if process.returncode is None:
            process.terminate()
        await process.wait()
    assert process.returncode == 0, process.returncode


async def soak(seconds: float) -> dict[str, Any]:
    """The figures of one run."""
    with tempfile.TemporaryDirectory() as folder:
        samples = Path(folder) / SAMPLES
        async with watched(Path(folder)) as gateway:
            await asyncio.sleep(REST_SECONDS)
            before = read(samples)[-1]
            config = load(Path(folder) / "manners.toml")
            crowd, promotions, loaded = await _load(gateway, config, samples, seconds)
            await asyncio.sleep(REST_SECONDS)
            after = read(samples)[-1]
        log = (Path(folder) / "log.jsonl").read_text()
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
    gateway: Watched, config: Config, samples: Path, seconds: float
) -> tuple[Crowd, Counter[str], list[dict[str, float]]]:
    """Everybody at once, and a promotion now and then; the samples taken after the warm-up."""
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as client:
        crowd, promotions = Crowd(gateway.url, client), Counter[str]()
        asking = [asyncio.create_task(crowd.caller(seed)) for seed in range(CALLERS)]
        for engine in ("large", "small"):
            promotions[await gateway.promote(engine, config)] += 1
        while crowd.kinds.total() < WARM_UP_REQUESTS:
            await asyncio.sleep(0.1)
        start, turn = time.monotonic(), 0
        warm = read(samples)[-1]["t"]
        while (left := start + seconds - time.monotonic()) > 0:
            if left > PROMOTE_EVERY / 2 and turn <= (time.monotonic() - start) // PROMOTE_EVERY:
                promotions[await gateway.promote(("large", "small")[turn % 2], config)] += 1
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
