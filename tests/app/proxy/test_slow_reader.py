"""A caller who stops reading costs a bounded amount of memory, no other caller, and no place for ever."""

import asyncio
from pathlib import Path

import pytest

from tests.app.house import GatewayFixture, eventually, frames, house, said
from tests.scale import PATIENCE
from tests.script import DONE, Head, Say, finish, text

pytestmark = pytest.mark.asyncio(loop_scope="module")

PIECE = "0123456789abcdef" * 1024  # 16 KiB
PIECES = 2_000  # 31 MiB: more than sockets on a loopback ever take
MOST = 20 << 20  # what the buffers of the kernel on two connections may hold, with room to spare


def script(pieces: int) -> tuple[Head | Say, ...]:
    """A reply much longer than any buffer."""
    return (Head(), *[Say(text(PIECE))] * pieces, Say(finish()), Say(DONE))


async def standstill(home: GatewayFixture) -> int:
    """Wait until the engine can say no more; how many bytes it had said by then."""
    seen = await home.engine.request()
    before = -1
    while before != seen.sent:
        before = seen.sent
        await asyncio.sleep(0.1)
    return before


def memory() -> int:
    """Bytes of this process in memory."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


@pytest.mark.slow  # megabytes go to a slow caller: 4 s
async def test_a_slow_reader_stops_the_engine_and_nobody_else(tmp_path: Path) -> None:
    """Its engine is paused, others stream on, and when it reads again nothing is missing."""
    async with house(tmp_path, gateway={"max_reply_bytes": 64 << 20}) as home:
        home.engine.play(*script(PIECES))
        before = memory()
        async with home.begin() as response:
            said_by_then = await standstill(home)
            grown = memory() - before
            print(f"engine paused after {said_by_then >> 10} KiB, memory +{grown >> 10} KiB")
            assert said_by_then < MOST
            assert grown < 2 * MOST
            async with asyncio.timeout(PATIENCE):
                for _ in range(20):
                    assert (await home.ask(stream=True)).text == "Hello there."
            stream = frames(await response.read())
        assert stream[-1] == "[DONE]"
        whole = said(stream) == PIECE * PIECES  # not in the assert: its difference would be 31 MiB
        assert whole


async def test_a_caller_who_never_reads_again_loses_its_place(tmp_path: Path) -> None:
    """It is taken for gone after the idle time, and is no engine's fault."""
    limits, large = {"idle": 0.4, "first_token": 5, "total": 60}, {"max_reply_bytes": 64 << 20}
    async with house(tmp_path, concurrency=1, queue=0, timeouts=limits, gateway=large) as home:
        home.engine.play(*script(PIECES))
        async with home.begin():
            booked = await home.booked()
        assert (booked["outcome"], booked["code"]) == ("client_cancel", None)
        await eventually(home.is_quiet)
        assert (await home.ask(stream=True)).text == "Hello there."
