"""A server of one socket that answers every request with scripted bytes at scripted times."""

import asyncio
import socket
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, closing, suppress

Step = bytes | float
"""Bytes to send, or seconds to wait."""

OK = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n"
ROLE = b'data: {"choices":[{"delta":{"role":"assistant","content":null}}]}\n\n'
USAGE = b'data: {"choices":[],"usage":{"completion_tokens":1}}\n\n'
DONE = b"data: [DONE]\n\n"


def delta(json: bytes) -> bytes:
    """One chunk with this delta."""
    return b'data: {"choices":[{"index":0,"delta":' + json + b"}]}\n\n"


TOKEN = delta(b'{"content":"Hi"}')


def answer(status: bytes, body: bytes = b"{}") -> bytes:
    """A whole response that is no stream."""
    return b"HTTP/1.1 %s\r\ncontent-length: %d\r\nconnection: close\r\n\r\n%s" % (
        status,
        len(body),
        body,
    )


class Scripted:
    """What came, and where it listens."""

    def __init__(self) -> None:
        self.requests: list[bytes] = []
        self.url = ""


@asynccontextmanager
async def scripted(*scripts: Sequence[Step]) -> AsyncIterator[Scripted]:
    """Serve: the first request gets the first script, the last script is repeated."""
    seen = Scripted()

    serving: set[asyncio.Task[None]] = set()

    def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        serving.add(asyncio.create_task(serve(reader, writer)))

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with closing(writer), suppress(OSError):  # the client may go first
            await play(reader, writer)

    async def play(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        length = [line for line in head.lower().split(b"\r\n") if b"content-length" in line]
        body = await reader.readexactly(int(length[0].split(b":")[1])) if length else b""
        script = scripts[min(len(seen.requests), len(scripts) - 1)]
        seen.requests.append(head + body)
        for step in script:
            if isinstance(step, bytes):
                writer.write(step)
                await writer.drain()
            else:
                await asyncio.sleep(step)

    server = await asyncio.start_server(accept, "127.0.0.1", 0)
    host, port = server.sockets[0].getsockname()
    seen.url = f"http://{host}:{port}"
    async with server:
        yield seen
        for task in serving:
            task.cancel()
        await asyncio.gather(*serving, return_exceptions=True)


def unused_url() -> str:
    """An address where nobody listens."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{sock.getsockname()[1]}"
