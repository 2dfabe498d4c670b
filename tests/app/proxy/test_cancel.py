"""A caller who goes away: the engine learns it at once, in every phase, and nothing is left."""

import asyncio
import json
import os
import random
import socket
import struct
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from tests.app.house import HELLO, GatewayFixture, eventually, house
from tests.scale import PATIENCE
from tests.script import Hang, Head, Say, Step, Tell, Wait, finish, reply, role, text, thought
from tests.scripted_engine import Seen

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def one(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[GatewayFixture]:
    """A gateway with one place: whatever keeps it keeps everybody out."""
    async with house(tmp_path_factory.mktemp("state"), concurrency=1, queue=1) as it:
        yield it


@pytest_asyncio.fixture(loop_scope="module")
async def home(one: GatewayFixture) -> GatewayFixture:
    """That gateway, with a fresh script."""
    one.engine.forget()
    await one.settle()
    return one


PHASES: dict[str, tuple[bool, tuple[Step, ...]]] = {
    "before the head": (True, ()),
    "in a thought": (True, (Head(), Say(role()), Say(thought("Hm")))),
    "in mid-stream": (True, (Head(), Say(role()), Say(text("One ")))),
    "after the finish": (True, (Head(), Say(text("One ")), Say(finish()))),
    "whole, before the head": (False, ()),
    "whole, in mid-reply": (False, (Head(), Say(role()), Say(text("One ")))),
    "in the body of an error": (True, (Head(500, "application/json", "length", 99), Say(b"{"))),
}


async def leave(writer: asyncio.StreamWriter, reset: bool) -> None:
    """Close the caller's connection."""
    if reset:
        linger = struct.pack("ii", 1, 0)
        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        writer.transport.abort()
    else:
        writer.close()


async def connect(home: GatewayFixture, stream: bool) -> asyncio.StreamWriter:
    """Send a request on a connection of its own."""
    body = json.dumps({"model": "annie", "messages": HELLO, "stream": stream}).encode()
    _, _, port = home.url.rpartition(":")
    _, writer = await asyncio.open_connection("127.0.0.1", int(port))
    head = "POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
    writer.write(f"{head}content-length: {len(body)}\r\n\r\n".encode() + body)
    return writer


async def abandoned(seen: Seen) -> None:
    """The engine saw its connection end. No deadline of the gateway would do that while a test waits."""
    async with asyncio.timeout(PATIENCE):
        await seen.gone.wait()


async def all_is_free(home: GatewayFixture) -> None:
    """Nothing is held: by the gauges, and by the next request, which gets the only place."""
    metrics = await home.metrics()
    assert metrics("manners_in_flight") == 0
    assert metrics("manners_queue_depth") == 0
    home.engine.play(*reply("Next."))
    assert (await home.ask(stream=True)).text == "Next."
    await home.booked()


@pytest.mark.parametrize("reset", [False, True], ids=["close", "reset"])
@pytest.mark.parametrize("phase", PHASES)
async def test_a_cancel_reaches_the_engine_in_every_phase(
    home: GatewayFixture, phase: str, reset: bool
) -> None:
    """The engine's connection ends, the place is free, and it is no error."""
    stream, steps = PHASES[phase]
    reached = asyncio.Event()
    home.engine.play(*steps, Tell(reached), Hang())
    writer = await connect(home, stream)
    seen = await home.engine.request()
    await reached.wait()
    await asyncio.sleep(0.01)  # the bytes of the phase are on their way through the gateway
    await leave(writer, reset)
    await abandoned(seen)
    booked = await home.booked()
    assert booked["outcome"] == "client_cancel"
    assert booked["engine"] == "scripted"
    await all_is_free(home)


async def test_a_cancel_in_the_queue_frees_the_place_in_it(home: GatewayFixture) -> None:
    """The engine never hears of a request that gave up while it waited."""
    home.engine.play(Head(), Say(text("One")), Hang())
    first = await connect(home, stream=True)
    seen = await home.engine.request()
    second = await connect(home, stream=True)
    waiting = home.gateway.proxy._queues["annie"]
    await eventually(lambda: waiting.waiting == 1)
    await leave(second, reset=False)
    await eventually(lambda: waiting.waiting == 0)
    queued = await home.booked()
    assert (queued["outcome"], queued["engine"]) == ("client_cancel", "none")
    assert waiting.in_flight == 1
    await leave(first, reset=False)
    await abandoned(seen)
    assert (await home.booked())["outcome"] == "client_cancel"
    assert len(home.engine.requests) == 1
    await all_is_free(home)


def descriptors() -> int:
    """Open files of this process: the gateway's, the engine's and the callers' sockets too."""
    return len(os.listdir("/proc/self/fd"))


async def test_a_hundred_cancels_leave_nothing_behind(tmp_path: Path) -> None:
    """No task, no socket, no place: at random moments of streams, waits in the queue, and ends."""
    dice = random.Random(20)
    async with house(tmp_path, concurrency=4, queue=200) as home:
        words = [step for word in "abcdefgh" for step in (Say(text(word)), Wait(0.002))]
        home.engine.always(Head(), Wait(0.005), Say(role()), *words, *reply()[1:])
        tasks, files = asyncio.all_tasks(), descriptors()

        async def caller(leaves_after: float) -> None:
            writer = await connect(home, stream=dice.random() < 0.7)
            await asyncio.sleep(leaves_after)
            await leave(writer, reset=dice.random() < 0.5)

        for _ in range(5):
            await asyncio.gather(*(caller(dice.uniform(0, 0.12)) for _ in range(20)))
        upstream = home.gateway.pool._backends["scripted"].upstream
        await eventually(lambda: home.is_quiet() and upstream.open == 0)
        upstream.close()
        await eventually(lambda: home.engine.live == 0)
        await eventually(lambda: descriptors() <= files)
        await eventually(lambda: asyncio.all_tasks() <= tasks)  # no request is still to be booked
        outcomes = [line["outcome"] for line in home.log.of("request")]
        assert set(outcomes) <= {"client_cancel", "ok"}
        assert outcomes.count("client_cancel") > 30
        metrics = await home.metrics()
        assert metrics("manners_in_flight") == metrics("manners_queue_depth") == 0
        assert metrics("manners_requests_total") == len(outcomes)


async def test_a_cancel_inside_the_request_body_takes_no_place(home: GatewayFixture) -> None:
    """A caller who leaves while it sends is no error of anybody."""
    _, _, port = home.url.rpartition(":")
    _, writer = await asyncio.open_connection("127.0.0.1", int(port))
    writer.write(
        b"POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: 99\r\n\r\n{"
    )
    await asyncio.sleep(0.01)
    writer.close()
    booked = await home.booked()
    assert (booked["outcome"], booked["model"]) == ("client_cancel", "_unknown")
    await all_is_free(home)
