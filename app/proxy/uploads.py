"""Room in memory for request bodies: a budget of bytes for all peers together, and for each.

The first LITTLE_BYTES of a body belong to its connection. A larger body gets room for all of it before more is read, so
that it can be read to its end; until then it waits in its peer's socket. A peer that has used up its share delays only
itself, and a large body is not overtaken by smaller ones for ever.
"""

import asyncio
from typing import Final

from starlette.types import Receive

from app.errors.tree import BodyTooLarge, Busy
from app.proxy.deadlines import ClientGone

LITTLE_BYTES: Final = 64 << 10
"""uvicorn reads so much of a body ahead."""
LEAST_BYTES: Final = 64 << 20
"""Of all bodies together, where their own limit is small."""
SHARE: Final = 8
"""One peer may hold so small a part of all."""
PATIENCE_SECONDS: Final = 10.0


class Uploads:
    """Bodies of at most `limit` bytes. Of one event loop."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._held: dict[str, int] = {}
        self._waiting: list[tuple[asyncio.Future[None], str, int]] = []

    async def body(self, receive: Receive, promised: bytes, peer: str) -> tuple[bytes, int]:
        """A body, and the room that it holds: the caller gives it back. `promised` is its Content-Length, a telling promise.

        Raises BodyTooLarge; Busy: there was no room in time. ClientGone: the caller left inside the body.
        """
        size = int(promised) if promised.isdigit() else 0
        body, more, held = bytearray(), True, 0  # no list: a body may come byte by byte
        try:
            while True:
                if size > self.limit:
                    raise BodyTooLarge(f"the body is larger than {self.limit} bytes: send less")
                if not held and size > LITTLE_BYTES:
                    wanted = size if promised or not more else self.limit  # a chunked body does not say
                    await self._take(peer, wanted)
                    held = wanted
                if not more:
                    return bytes(body), held
                message = await receive()
                if message["type"] == "http.disconnect":
                    raise ClientGone
                body += message.get("body", b"")
                size, more = max(size, len(body)), message.get("more_body", False)
        except BaseException:
            self.give_back(peer, held)
            raise

    async def _take(self, peer: str, size: int) -> None:
        """Wait for room. Raises Busy: there was none in time."""
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((turn, peer, size))
        self._grant()
        try:
            async with asyncio.timeout(PATIENCE_SECONDS):
                await turn
        except BaseException as error:
            if turn.done() and not turn.cancelled():  # granted in the same moment
                self.give_back(peer, size)
            self._waiting = [one for one in self._waiting if one[0] is not turn]
            self._grant()
            if isinstance(error, TimeoutError):
                why = f"no memory for a body of {size} bytes became free in {PATIENCE_SECONDS:g} s; try later"
                raise Busy(why, "upload_timeout") from None
            raise

    def give_back(self, peer: str, size: int) -> None:
        """Free the room of a body."""
        if size:
            self._held[peer] -= size
            if not self._held[peer]:
                del self._held[peer]
            self._grant()

    def _grant(self) -> None:
        most = max(LEAST_BYTES, 4 * self.limit)
        each = max(most // SHARE, self.limit)
        for one in list(self._waiting):
            turn, peer, size = one
            held = self._held.get(peer, 0)
            if held + size > each:
                continue
            if sum(self._held.values()) + size > most:
                return
            self._waiting.remove(one)
            if not turn.done():
                self._held[peer] = held + size
                turn.set_result(None)
