"""What a hold-back costs: milliseconds to first content, by its size and by the engine's speed.

`python -m tests.bench.holdback` runs a gateway before a paced scripted engine, and prints the table of
docs/holdback.md. The reply is a spoken answer of 60 tokens; all requests of one speed run at once.
"""

import asyncio
import statistics
import sys
import tempfile
import time
from pathlib import Path

from tests.app.house import House, config, run
from tests.script import DONE, Head, Say, Step, Wait, finish, role, text
from tests.scripted_engine import ScriptedEngine

TOKENS = (
    (
        "The train to Mysuru leaves at ten past nine, and it takes about three hours. Priya said that she will"
        " wait for you at the station. You may want to take a book and some water, because it will be warm today."
        " Shall I set an alarm for eight, so that you have time for breakfast before you go?"
    )
    .replace(" ", "\0 ")
    .split("\0")
)
SPEEDS = (25, 50, 100)
SIZES = (0, 160, 1024)
ROUNDS = 5


def paced(speed: int) -> tuple[Step, ...]:
    """The reply at so many tokens a second."""
    said: list[Step] = []
    for token in TOKENS:
        said += [Wait(1 / speed), Say(text(token))]
    return (Head(), Say(role()), *said, Say(finish()), Say(DONE))


async def first_content(home: House) -> float:
    """Milliseconds from the request to the first text."""
    start = time.perf_counter()
    async with home.begin() as response:
        async for line in response.content:
            if line.startswith(b"data: {") and b'"content":"' in line and b'"content":""' not in line:
                return (time.perf_counter() - start) * 1000
    raise RuntimeError("the reply held no text")


async def measure(size: int, speed: int) -> float:
    """The median over a few requests."""
    with tempfile.TemporaryDirectory() as folder:
        async with ScriptedEngine() as engine:
            engine.always(*paced(speed))
            settings = config(engine, Path(folder), dialect="openai", thought_guard=size)
            async with run(settings, engine) as home:
                return statistics.median(await asyncio.gather(*(first_content(home) for _ in range(ROUNDS))))


async def main() -> None:
    """Print the table as Markdown."""
    characters = sum(map(len, TOKENS))
    print(f"| held | {' | '.join(f'{speed} tokens/s' for speed in SPEEDS)} |")
    print("| --- " * (len(SPEEDS) + 1) + "|")
    for size in SIZES:
        cells = [f"{await measure(size, speed):.0f} ms" for speed in SPEEDS]
        print(f"| {size} | {' | '.join(cells)} |", flush=True)
    print(f"{len(TOKENS)} tokens, {characters} characters", file=sys.stderr)


if __name__ == "__main__":
    asyncio.run(main())
