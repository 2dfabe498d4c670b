"""`manners serve` that counts itself: memory, tasks, descriptors and threads, a JSON line a second.

    python -m tests.reliability.watched CONFIG SAMPLES

Only the loop itself knows its tasks, so this runs in the gateway's process; the rest is `app.server`.
Candidates of promotions are neither warmed nor questioned: that would be most of what is measured.
"""

import asyncio
import json
import os
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, cast

import uvloop

from app.config.config import load
from app.promotion.state_machine import Action
from app.promotion.steps import HANDLERS
from app.server import serve
from tests.app.promotion.stage import passed_over

THREADS = 6
"""Of the loop's executor. All are started first: one that starts under load would look like a leak."""
PAGE = os.sysconf("SC_PAGE_SIZE")


def sample(start: float) -> dict[str, float]:
    """What this process holds now. Memory is resident, in MiB."""
    return {
        "t": round(time.monotonic() - start, 2),
        "rss_mib": round(int(Path("/proc/self/statm").read_text().split()[1]) * PAGE / 2**20, 2),
        "tasks": len(asyncio.all_tasks()),
        "descriptors": len(os.listdir("/proc/self/fd")) - 1,  # one is the listing's own
        "threads": threading.active_count(),
    }


async def _watch(path: Path) -> None:
    start = time.monotonic()
    with path.open("w", encoding="utf-8") as file:
        while True:
            file.write(json.dumps(sample(start)) + "\n")
            file.flush()
            await asyncio.sleep(1.0)


async def main(config: Path, samples: Path) -> None:
    """Serve until a signal."""
    pool = ThreadPoolExecutor(THREADS)
    barrier = threading.Barrier(THREADS)
    list(pool.map(lambda _: barrier.wait(), range(THREADS)))
    asyncio.get_running_loop().set_default_executor(pool)
    for verb in (Action.WARM, Action.PROBE):
        cast(dict[Action, Any], HANDLERS)[verb] = passed_over
    watch = asyncio.create_task(_watch(samples))
    try:
        await serve(load(config))
    finally:
        watch.cancel()


if __name__ == "__main__":
    uvloop.run(main(Path(sys.argv[1]), Path(sys.argv[2])))
