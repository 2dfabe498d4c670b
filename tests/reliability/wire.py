"""Requests that no client library would send, byte by byte over a real socket."""

import asyncio
import contextlib
import json
import re
from collections.abc import Sequence
from typing import Any

from tests.scale import PATIENCE


class Wire:
    """One raw connection to a listener."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    @classmethod
    async def to(cls, url: str) -> "Wire":
        """Connect to `http://host:port`."""
        host, _, port = url.removeprefix("http://").partition(":")
        return cls(*await asyncio.open_connection(host, int(port)))

    async def send(self, data: bytes) -> None:
        """As much as the other side takes before it ends the connection."""
        with contextlib.suppress(OSError):
            self._writer.write(data)
            await self._writer.drain()

    async def until(self, mark: bytes) -> bytes:
        """What comes, up to these bytes."""
        async with asyncio.timeout(PATIENCE):
            return await self._reader.readuntil(mark)

    async def rest(self) -> bytes:
        """Everything up to the end of the connection, which the other side must make."""
        came = bytearray()
        try:
            async with asyncio.timeout(PATIENCE):
                with contextlib.suppress(OSError):
                    while data := await self._reader.read(65_536):
                        came += data
        finally:
            self.close()
        return bytes(came)

    def close(self) -> None:
        """Go away."""
        self._writer.transport.abort()


def post(body: bytes | dict[str, Any], *headers: str, path: str = "/v1/chat/completions") -> bytes:
    """A request; its length is stated unless a header speaks of the body's framing."""
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    framed = any(h.lower().startswith(("content-length", "transfer-encoding")) for h in headers)
    lines = [f"POST {path} HTTP/1.1", "Host: localhost", "Content-Type: application/json", *headers]
    lines += [] if framed else [f"Content-Length: {len(data)}"]
    return "\r\n".join([*lines, "", ""]).encode("latin-1") + data


def statuses(raw: bytes) -> Sequence[int]:
    """The status of every reply in these bytes."""
    return [int(status) for status in re.findall(rb"HTTP/1\.1 (\d{3}) ", raw)]


def code(raw: bytes) -> str:
    """The error's code, in the envelope and nothing else."""
    error: dict[str, Any] = json.loads(raw.partition(b"\r\n\r\n")[2])["error"]
    assert error.keys() == {"message", "type", "code", "param"}
    return str(error["code"])
