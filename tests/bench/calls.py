"""`python -m tests.bench.calls`: which functions of the gateway a streamed chunk passes, and how many calls a streamed
request makes, counted with a profiler.

A whole gateway in this process, over a scripted engine; one chunk of plain text at a time, after the reply has
begun, or one request whose reply comes in one read. Only the program's own Python functions count: not the event loop's, uvicorn's or the HTTP parser's.
"""

import asyncio
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

from tests.app.house import GatewayFixture, eventually, house
from tests.script import DONE, Do, Head, Say, Step, finish, role, text

ROOT = Path(__file__).parents[2]
FLOORS = tuple(f"{ROOT / floor}/" for floor in ("app", "deploy", "gates"))
WORD = " word"
CHUNKS = 9
REQUESTS = 9
"""Of which the fewest calls count: a timer may run beside any of them."""


@dataclass(frozen=True)
class Calls:
    """The calls of one chunk or one request, in order, as (file, qualified name)."""

    made: tuple[tuple[str, str], ...]

    @property
    def functions(self) -> int:
        """Different ones."""
        return len(set(self.made))

    @property
    def classes(self) -> int:
        """Those of which a method was called."""
        owners = {(file, name.split(".<locals>")[0].rpartition(".")[0]) for file, name in self.made}
        return len({owner for owner in owners if owner[1]})

    @property
    def files(self) -> int:
        """In which these functions are."""
        return len({file for file, _ in self.made})

    @property
    def until_asked(self) -> int:
        """How many were made before the engine was sent its request: they cost time to first token."""
        return [name for _, name in self.made].index("EngineReply.send")

    def __str__(self) -> str:
        return f"{self.functions} Python functions of {self.classes} classes in {self.files} files"


def _profiler(made: list[tuple[str, str]]) -> Callable[[FrameType, str, object], None]:
    """Notes the program's own calls, for `sys.setprofile`."""

    def profile(frame: FrameType, event: str, _: object) -> None:
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(FLOORS):
            made.append((str(Path(code.co_filename).relative_to(ROOT)), code.co_qualname))

    return profile


async def count(home: GatewayFixture) -> Calls:
    """The calls of the chunk that made the fewest."""
    heard, found = Counter[str](), list[Calls]()
    made: list[tuple[str, str]] = []

    async def begin(_: int) -> None:
        await eventually(lambda: heard["words"] == len(found) + 1)
        made.clear()
        sys.setprofile(_profiler(made))

    async def end(_: int) -> None:
        await eventually(lambda: heard["words"] == len(found) + 2)
        sys.setprofile(None)
        found.append(Calls(tuple(made)))

    one_more: list[Step] = [Do(begin), Say(text(WORD)), Do(end)]
    home.engine.play(Head(), Say(role()), Say(text(WORD)), *one_more * CHUNKS, Say(finish()), Say(DONE))
    try:
        async with home.begin() as response:
            async for data in response.content.iter_any():
                heard["words"] += data.count(WORD.encode())
    finally:
        sys.setprofile(None)
    await home.booked()
    return min(found, key=lambda calls: len(calls.made))


async def count_request(home: GatewayFixture) -> Calls:
    """The calls of the request that made the fewest, from its first byte to its log line."""
    found: list[Calls] = []
    for _ in range(REQUESTS):
        home.engine.play(Head(), Say(role() + text(WORD) + finish() + DONE))
        made: list[tuple[str, str]] = []
        sys.setprofile(_profiler(made))
        try:
            async with home.begin() as response:
                await response.read()
            await home.booked()
        finally:
            sys.setprofile(None)
        found.append(Calls(tuple(made)))
    return min(found, key=lambda calls: len(calls.made))


async def measure() -> tuple[Calls, Calls]:
    """Those of a chunk and of a request, in a gateway of its own."""
    with tempfile.TemporaryDirectory() as folder:
        async with house(Path(folder)) as home:
            return await count(home), await count_request(home)


def main() -> None:
    """Print them in the order of the first call, and how many there are."""
    for what, calls in zip(("chunk", "request"), asyncio.run(measure()), strict=True):
        for (file, name), times in Counter(calls.made).items():
            print(f"{file:<34} {name}{f' ({times} times)' if times > 1 else ''}")
        until = f", {calls.until_asked} of them until the engine is asked" if what == "request" else ""
        print(f"\nA {what}: {calls}, {len(calls.made)} calls{until}\n")


if __name__ == "__main__":
    main()
