"""Room for bodies: all that comes is bounded, for all peers and for each, and who is slow keeps nobody else waiting."""

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from app.errors.tree import BadHTTP, Busy
from app.proxy import admission as module
from app.proxy.admission import LEAST_BYTES, LITTLE_BYTES, SHARE, Uploads
from app.proxy.deadlines import ClientGone

LIMIT = LEAST_BYTES // SHARE
"""The most that one peer may hold is one such body, and there is room for eight peers."""


class Peer:
    """Sends a body in pieces of 64 KiB, as many as `go_on` lets it, and counts what was taken of it."""

    def __init__(self, size: int = LIMIT, stuck_at: int | None = None) -> None:
        self.size, self.taken = size, 0
        self.stuck_at = size if stuck_at is None else stuck_at
        self.go_on = asyncio.Event()

    async def receive(self) -> dict[str, Any]:
        if self.taken >= self.stuck_at:
            await self.go_on.wait()
        piece = min(LITTLE_BYTES, self.size - self.taken)
        self.taken += piece
        return {"type": "http.request", "body": bytes(piece), "more_body": self.taken < self.size}


def sent(uploads: Uploads, peer: Peer, name: str, promised: bool = True) -> "asyncio.Task[tuple[bytes, int]]":
    length = b"%d" % peer.size if promised else b""
    return asyncio.create_task(uploads.body(peer.receive, length, name))


async def settle() -> None:
    for _ in range(1000):
        await asyncio.sleep(0)


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(module, "UPLOAD_SECONDS", 1000)
    return iter([None])


@pytest.mark.parametrize("promised", [True, False], ids=["of stated length", "chunked"])
async def test_unfinished_bodies_of_all_peers_together_are_bounded(promised: bool) -> None:
    uploads = Uploads(LIMIT)
    peers = [Peer(stuck_at=LIMIT - LITTLE_BYTES) for _ in range(4 * SHARE)]
    tasks = [sent(uploads, peer, f"{n}", promised) for n, peer in enumerate(peers)]
    await settle()
    assert LEAST_BYTES // 2 < sum(peer.taken for peer in peers) <= LEAST_BYTES + len(peers) * 2 * LITTLE_BYTES
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    assert not uploads._held and not uploads._waiting


async def test_a_slow_peer_holds_its_own_share_and_others_come_to_an_end() -> None:
    uploads = Uploads(LIMIT)
    slow = [Peer(stuck_at=LITTLE_BYTES) for _ in range(16)]
    tasks = [sent(uploads, peer, "slow") for peer in slow]
    await settle()
    assert sum(peer.taken for peer in slow) <= LIMIT
    for _ in range(3):
        body, held = await sent(uploads, Peer(), "quick")
        assert len(body) == held == LIMIT
        uploads.give_back("quick", held)
    for peer in slow:
        peer.go_on.set()
    for task in tasks:  # each in its turn
        uploads.give_back("slow", (await task)[1])
    assert not uploads._held


async def test_a_little_body_needs_no_room() -> None:
    uploads = Uploads(LIMIT)
    stuck = sent(uploads, Peer(stuck_at=0), "kitchen")
    await settle()
    assert await sent(uploads, Peer(size=1000), "kitchen") == (bytes(1000), 0)
    stuck.cancel()


async def test_who_gets_no_room_in_time_is_told_to_come_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "UPLOAD_SECONDS", 0.01)
    uploads = Uploads(LIMIT)
    stuck = sent(uploads, Peer(stuck_at=0), "kitchen")
    await settle()
    with pytest.raises(Busy) as caught:
        await sent(uploads, Peer(), "kitchen")
    assert (caught.value.code, caught.value.retry_after) == ("upload_timeout", 1)
    stuck.cancel()
    await settle()
    assert not uploads._held and not uploads._waiting


async def test_who_leaves_or_sends_too_much_gives_the_room_back() -> None:
    uploads = Uploads(LIMIT)

    async def gone() -> dict[str, Any]:
        return {"type": "http.disconnect"}

    with pytest.raises(ClientGone):
        await uploads.body(gone, b"%d" % LIMIT, "kitchen")
    with pytest.raises(BadHTTP, match="larger than"):
        await sent(uploads, Peer(size=LIMIT + 1), "kitchen", promised=False)
    assert not uploads._held
