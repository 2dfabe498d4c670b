"""`python -m tests.ops`: draw docs/dashboard.svg from a real gateway, real engines and a real Prometheus.

Callers talk for some minutes; in between the live engine is killed and comes back.
"""

import asyncio
import re
import tempfile
from pathlib import Path

from deploy.dashboards.voice import VOICE
from tests.ops.facts import ROOT
from tests.ops.picture import Line, Shown, draw
from tests.ops.prometheus import Prometheus, prometheus
from tests.ops.scene import Scene, scene

OUT = ROOT / "docs" / "dashboard.svg"
ROUNDS, CALLERS, PAUSE_S = 6, 4, 0.35
STEP_S = 4


async def main() -> None:
    """Talk, kill, mend, talk; then draw."""
    with tempfile.TemporaryDirectory() as name:
        base, watched = Path(name) / "scene", Path(name) / "prometheus"
        base.mkdir()
        watched.mkdir()
        async with scene(base) as it, prometheus(watched, it.target) as watcher:
            await it.talk(1)
            start = await _now(watcher)
            await _play(it)
            end = await _now(watcher)
            OUT.write_text(draw(VOICE, await collect(watcher, start, end), start, end), "utf-8")


async def _play(it: Scene) -> None:
    await it.talk(ROUNDS, CALLERS, PAUSE_S)
    it.kill()
    await it.talk(ROUNDS // 2, CALLERS, PAUSE_S)
    it.mend()
    await it.talk(ROUNDS, CALLERS, PAUSE_S)


async def _now(watcher: Prometheus) -> float:
    """Prometheus's clock, in Unix seconds."""
    found = await watcher.get("query", query="time()")
    return float(found["result"][0])


async def collect(watcher: Prometheus, start: float, end: float) -> Shown:
    """The lines of every panel."""
    shown: dict[str, list[Line]] = {}
    for panel in VOICE.panels():
        lines = shown.setdefault(panel.title, [])
        for query in panel.queries:
            legend = "{{le}}" if panel.kind == "heatmap" else query.legend
            for labels, points in await watcher.over(query.expr, start, end, STEP_S):
                name = re.sub(r"\{\{(\w+)\}\}", lambda m, has=labels: has.get(m[1], ""), legend)
                lines.append((name, [(float(t), float(v)) for t, v in points]))
    return shown


if __name__ == "__main__":
    asyncio.run(main())
