"""A TCP proxy that does to an engine's replies what networks do: one fault at a time, byte by byte."""

import asyncio
import re
import socket
import struct
from collections.abc import Awaitable, Callable
from typing import Self
from urllib.parse import urlsplit

FIRST_TEXT = re.compile(rb'"content":"[^"]')
_SPLIT = re.compile(rb'(?<="content":")[ a-zA-Z]{2}')
ACCENTED = "é"
CHUNK_END = b"\n\n\r\n"
"""Of an event that is an HTTP chunk of its own."""
INSIDE = 20
"""Bytes into the next chunk, which is longer."""


class Cut(Exception):
    """The reply ends here, with a reset or with an end."""

    def __init__(self, reset: bool) -> None:
        self.reset = reset


class Connection:
    """The way of one reply back to the gateway; a fault writes to it, waits, or raises Cut."""

    def __init__(self, writer: asyncio.StreamWriter) -> None:
        self._writer = writer
        self.passed = b""  # of this reply, up to now
        self.gone = asyncio.Event()  # the gateway has closed its end

    async def write(self, data: bytes) -> None:
        """On to the gateway, at once."""
        self.passed += data
        self._writer.write(data)
        await self._writer.drain()

    async def silence(self) -> None:
        """Half open: nothing more comes, and nothing says so, until the gateway gives up."""
        await self.gone.wait()
        raise Cut(reset=False)


Fault = Callable[[Connection, bytes], Awaitable[None]]
"""What becomes of some bytes of a reply."""


async def nothing(way: Connection, data: bytes) -> None:
    """No fault."""
    await way.write(data)


class Proxy:
    """`async with Proxy(engine_url) as proxy:`; `fault` is what every reply meets from now on."""

    def __init__(self, target: str) -> None:
        parts = urlsplit(target)
        self._target = (parts.hostname or "", parts.port or 80)
        self.fault: Fault = nothing
        self.open = 0  # connections of the gateway's
        self._tasks: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self.open += 1
        reset = False
        engine_in, engine_out = await asyncio.open_connection(*self._target)
        way = Connection(writer)
        asking = asyncio.create_task(self._ask(reader, engine_out, way))
        try:
            while data := await engine_in.read(65_536):
                await self.fault(way, data)
        except Cut as cut:
            reset = cut.reset
        except OSError:
            pass  # the gateway has gone
        finally:
            asking.cancel()
            engine_out.transport.abort()
            if reset:
                linger = struct.pack("ii", 1, 0)  # so that closing sends a RST
                writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
                writer.transport.abort()
            writer.close()
            self.open -= 1
            self._tasks.discard(task)

    async def _ask(self, reader: asyncio.StreamReader, engine: asyncio.StreamWriter, way: Connection) -> None:
        """Requests go on as they are."""
        while data := await reader.read(65_536):
            way.passed = b""
            engine.write(data)
        way.gone.set()
        engine.transport.abort()


# ------------------------------------------------------------------------------------------ faults


async def late(way: Connection, data: bytes) -> None:
    await asyncio.sleep(0.1)
    await way.write(data)


async def byte_by_byte(way: Connection, data: bytes) -> None:
    for byte in data:
        await way.write(bytes([byte]))
        await asyncio.sleep(0)


async def split_characters(way: Connection, data: bytes) -> None:
    """Two letters of each piece become one character of two bytes, which come one after the other."""
    for piece in re.split(rb"(?<=\xc3)", _SPLIT.sub(ACCENTED.encode(), data)):
        await way.write(piece)
        await asyncio.sleep(0.005)


async def refuse(way: Connection, data: bytes) -> None:
    raise Cut(reset=False)


async def reset_at_once(way: Connection, data: bytes) -> None:
    raise Cut(reset=True)


async def silent(way: Connection, data: bytes) -> None:
    await way.silence()


async def _head_only(way: Connection, data: bytes) -> None:
    head, end, _ = data.partition(b"\r\n\r\n")
    await way.write(head + end)


async def head_then_close(way: Connection, data: bytes) -> None:
    await _head_only(way, data)
    raise Cut(reset=False)


async def head_then_silence(way: Connection, data: bytes) -> None:
    await _head_only(way, data)
    await way.silence()


async def _after_text(way: Connection, data: bytes, into: int) -> bytes | None:
    """What of a reply is to be hurt: all that comes `into` bytes behind the first chunk that has text.

    What comes before has gone on, and has had its time; None while there is nothing behind it. However
    the engine's bytes are cut into reads, a fault meets the reply in the same place.
    """
    before = way.passed
    text = FIRST_TEXT.search(before + data)
    end = -1 if text is None else (before + data).find(CHUNK_END, text.start())
    if end < 0:
        await way.write(data)
        return None
    cut = end + len(CHUNK_END) + into - len(before)
    if cut > 0:
        await way.write(data[:cut])
        await asyncio.sleep(0.02)
    return data[max(cut, 0) :] or None


async def reset_in_a_chunk(way: Connection, data: bytes) -> None:
    if await _after_text(way, data, INSIDE) is not None:
        raise Cut(reset=True)


async def close_in_a_chunk(way: Connection, data: bytes) -> None:
    if await _after_text(way, data, INSIDE) is not None:
        raise Cut(reset=False)


async def silence_in_a_chunk(way: Connection, data: bytes) -> None:
    if await _after_text(way, data, INSIDE) is not None:
        await way.silence()


async def noise_between_chunks(way: Connection, data: bytes) -> None:
    rest = await _after_text(way, data, 0)
    if rest is not None:
        await way.write(b"\xff\xfe\r\n" + rest)


async def pause_in_a_chunk(way: Connection, data: bytes) -> None:
    half = len(data) // 2
    await way.write(data[:half])
    await asyncio.sleep(0.05)
    await way.write(data[half:])
