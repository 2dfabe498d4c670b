"""`python -m tests.ops`: draw docs/dashboard.svg from a real gateway, real engines and a real Prometheus.

Callers talk for some minutes; meanwhile a smaller engine is promoted and rolled back, and the live one is
killed and comes back.
"""

import asyncio
import re
import tempfile
from collections.abc import Mapping
from pathlib import Path

from deploy.dashboards.panel import Annotation
from deploy.dashboards.voice import VOICE
from tests.ops.facts import ROOT
from tests.ops.picture import Line, Moment, Shown, draw
from tests.ops.prometheus import Prometheus, prometheus
from tests.ops.scene import Scene, scene

OUT = ROOT / "docs" / "dashboard.svg"
ROUNDS, CALLERS, PAUSE_S = 4, 3, 0.5
STEP_S = 4


async def main() -> None:
    """Talk, promote, roll back, kill, mend, talk; then draw."""
    with tempfile.TemporaryDirectory() as name:
        base, watched = Path(name) / "scene", Path(name) / "prometheus"
        base.mkdir()
        watched.mkdir()
        async with scene(base) as it, prometheus(watched, it.target) as watcher:
            await it.talk(1)
            start = await _now(watcher)
            await _play(it)
            end = await _now(watcher)
            shown, marked = await collect(watcher, start, end, STEP_S)
            OUT.write_text(draw(VOICE, shown, marked, start, end), "utf-8")


async def _play(it: Scene) -> None:
    await it.talk(ROUNDS, CALLERS, PAUSE_S)
    assert await it.under_load(it.promote("annie-fp4"), CALLERS, PAUSE_S) == ("succeeded", {200})
    await it.talk(ROUNDS, CALLERS, PAUSE_S)
    assert await it.under_load(it.roll_back(), CALLERS, PAUSE_S) == ("succeeded", {200})
    await it.talk(ROUNDS, CALLERS, PAUSE_S)
    it.kill()
    await it.talk(ROUNDS // 2, CALLERS, PAUSE_S)
    it.mend()
    await it.talk(ROUNDS, CALLERS, PAUSE_S)


async def _now(watcher: Prometheus) -> float:
    """Prometheus's clock, in Unix seconds."""
    found = await watcher.get("query", query="time()")
    return float(found["result"][0])


async def collect(watcher: Prometheus, start: float, end: float, step: float) -> tuple[Shown, list[Moment]]:
    """The lines of every panel, and what is marked on all of them."""
    shown: dict[str, list[Line]] = {}
    for panel in VOICE.panels():
        lines = shown.setdefault(panel.title, [])
        for query in panel.queries:
            legend = "{{le}}" if panel.kind == "heatmap" else query.legend
            for labels, points in await watcher.over(query.expr, start, end, step):
                lines.append((named(legend, labels), [(float(t), float(v)) for t, v in points]))
    return shown, [found for mark in VOICE.marks for found in await moments(watcher, mark, start, end, step)]


async def moments(
    watcher: Prometheus, mark: Annotation, start: float, end: float, step: float
) -> list[Moment]:
    """When an annotation marks what, in the order of time."""
    found = await watcher.over(mark.query.expr, start, end, step)
    return sorted((float(t), named(mark.query.legend, labels)) for labels, points in found for t, _ in points)


def named(legend: str, labels: Mapping[str, str]) -> str:
    """A legend with its labels put in."""
    return re.sub(r"\{\{(\w+)\}\}", lambda m: labels.get(m[1], ""), legend)


if __name__ == "__main__":
    asyncio.run(main())
