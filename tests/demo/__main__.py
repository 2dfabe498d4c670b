"""`python -m tests.demo`: what Manners is for, in a terminal, with real engines and open streams.

Exit code 0 only if everything came out as it is told.
"""

import argparse
import asyncio
import signal
import sys
import tempfile
import time
from pathlib import Path

from tests.demo.crowd import figures, spoken_since
from tests.demo.place import CANDIDATE, Place
from tests.demo.screen import Screen
from tests.demo.story import Failed, Story, Told


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.demo", description=__doc__)
    parser.add_argument("--still", type=Path, metavar="FILE", help="a still picture of it (SVG)")
    parser.add_argument(
        "--keep", type=Path, metavar="DIR", help="an empty folder for reports, state and logs"
    )
    return parser.parse_args()


def main() -> int:
    """Tell the story; 1 if something was not as told."""
    options = _arguments()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that what was started is ended
    screen = Screen(options.still)
    began = time.monotonic()
    screen.say(
        "[bold]Manners[/]: a quantized model is let in when it has proved its manners, and put out when it loses them."
    )
    with tempfile.TemporaryDirectory(prefix="demo-") as temporary:
        story = Story(Place(options.keep or Path(temporary)), screen)
        try:
            told = asyncio.run(story.tell())
        except Failed as why:
            screen.say(f"[red]{why}[/]")
            return 1
        except KeyboardInterrupt:
            return 130
    _numbers(screen, story)
    sound = _judged(screen, story, told, time.monotonic() - began)
    screen.keep()
    return 0 if sound else 1


def _numbers(screen: Screen, story: Story) -> None:
    found = figures(story.crowd.heard)
    screen.act("The numbers", "What the callers heard.")
    screen.say(f"  {found.streams} streams: {found.whole} whole, {found.truncated} truncated, {found.lost} lost; "
               f"first word {found.p50 or 0:.0f} ms (p95 {found.p95 or 0:.0f} ms)")  # fmt: skip


def _judged(screen: Screen, story: Story, told: Told, seconds: float) -> bool:
    """Whether all came out as told; shown line by line."""
    heard, crowd = story.crowd.heard, story.crowd
    hers = spoken_since(heard, CANDIDATE, told.spoiled)
    # A spoiled engine may say nothing but thoughts and broken calls: then the caller is told that nothing was left.
    spoiled = told.spoiled or float("inf")
    filtered = [one for one in heard if one.ended > spoiled and "reply_fully_filtered" in one.why]
    broken = [one for one in heard if one.end != "whole" and one not in filtered]
    thoughts = sum("leak" in one.faults for one in heard if one not in hers)
    told.check(f"{crowd.opened} streams opened, {len(heard) - len(broken)} heard whole, none lost",
               not broken and crowd.opened == len(heard))  # fmt: skip
    tags = sum("think_tag" in one.faults for one in heard)
    told.check(f"replies with a think tag: {tags}; with a thought, of a sound model: {thoughts}",
               tags == thoughts == 0)  # fmt: skip
    if told.spoiled is not None:
        last = max((one.ended for one in hers), default=told.spoiled)
        marked, aloud = (sum(fault in one.faults for one in hers) for fault in ("markdown", "leak"))
        told.check(f"{last - told.spoiled:.1f} s from the spoiled file to her last word: {len(hers)} replies, "
                   f"{marked} in markdown, {aloud} thinking aloud", bool(hers))  # fmt: skip
    told.check(f"all of it in {seconds:.0f} s", seconds < 300.0)
    for words, true in told.checks:
        screen.say(f"  {'[green]✓[/]' if true else '[bold red]✗[/]'} {words}")
    for one in broken[:5]:
        screen.say(f"    [red]{one.end}: {one.why}[/]")
    return all(true for _, true in told.checks)


if __name__ == "__main__":
    sys.exit(main())
