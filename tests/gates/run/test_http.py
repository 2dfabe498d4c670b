"""The network edge: foreign errors and their kinds, and where a key comes from."""

from pathlib import Path
from typing import Any

import httpcore2
import pytest

from gates.contracts.errors import RunError
from gates.run.http import READ_BYTES, ReplyLimits, RequestTimeouts, TimedClient, read_key
from tests.gates.run.parts import target
from tests.scale import PATIENCE
from tests.script import CloseNow, Hang, Head, Raw, Say, Step, Wait, role, text
from tests.scripted_engine import ScriptedEngine

IDLE = RequestTimeouts(idle=0.15, total=PATIENCE)
BRIEF = RequestTimeouts(idle=PATIENCE, total=0.4)
DRIP = tuple(step for _ in range(8) for step in (Say(text("x")), Wait(0.1)))

KINDS: dict[str, tuple[tuple[Step, ...], str, str]] = {
    "no-headers": ((Hang(),), "timeout", "nothing came for 0.15 s"),
    "no-body": ((Head(), Hang()), "timeout", "nothing came for 0.15 s"),
    "never-over": ((Head(), *DRIP, Hang()), "timeout", "not over after 0.4 s"),
    "no-http": ((Raw(b"SSH-2.0-OpenSSH\r\n\r\n"),), "broken", "RemoteProtocolError"),
    "closed": ((CloseNow(),), "broken", "RemoteProtocolError"),
    "cut": ((Head(), Say(role()), CloseNow()), "broken", "RemoteProtocolError"),
}  # fmt: skip


@pytest.mark.parametrize("steps, kind, detail", KINDS.values(), ids=KINDS)
async def test_every_foreign_error_is_a_fault_of_its_kind(
    steps: tuple[Step, ...], kind: str, detail: str
) -> None:
    async with ScriptedEngine() as engine:
        engine.play(*steps)
        attempt = await TimedClient(BRIEF if steps[1:-1] == DRIP else IDLE).ask(target(engine), b"{}")

    assert attempt.fault is not None and attempt.fault.kind == kind
    assert detail in attempt.fault.detail
    assert (attempt.status == 200) == isinstance(steps[0], Head)
    assert bool(attempt.reads) == any(isinstance(step, Say) for step in steps)


LIMITS = ReplyLimits(size=20_000, lines=1000)
FLOODS: dict[str, tuple[Step, bytes]] = {
    "interim replies": (Raw(b""), b"HTTP/1.1 100 \r\n\r\n"),
    "chunks of a byte": (Head(), b"1\r\n:\r\n"),
    "empty lines": (Head(framing="close"), b"\n"),
    "one line": (Head(framing="close"), b"xxxxxxxxx"),
    "a length": (Head(framing="length", size=1 << 40), b"xxxxxxxxx"),
}


@pytest.mark.parametrize("head, piece", FLOODS.values(), ids=FLOODS)
@pytest.mark.parametrize("pieces", [1, 50_000])
async def test_a_reply_without_end_is_given_up_before_more_of_it_is_parsed(
    head: Step, piece: bytes, pieces: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = b""
    receive = httpcore2.AnyIOBackend.connect_tcp

    async def counted(*args: Any, **options: Any) -> httpcore2.AsyncNetworkStream:
        stream = await receive(*args, **options)
        original = stream.read

        async def seen(most: int, timeout: float | None = None) -> bytes:
            nonlocal read
            data = await original(most, timeout)
            read += data
            return data

        monkeypatch.setattr(stream, "read", seen)
        return stream

    monkeypatch.setattr(httpcore2.AnyIOBackend, "connect_tcp", counted)
    async with ScriptedEngine() as engine:
        engine.play(head, *([Raw(piece * pieces)] * (50_000 // pieces)), Hang())
        attempt = await TimedClient(RequestTimeouts(), LIMITS).ask(target(engine), b"{}")
        await engine.requests[-1].gone.wait()

    assert attempt.fault is not None and attempt.fault.kind == "broken"
    assert "bytes or 1000 lines" in attempt.fault.detail
    assert len(read) <= LIMITS.size + READ_BYTES


async def test_no_redirect_is_followed() -> None:
    async with ScriptedEngine() as engine, ScriptedEngine() as other:
        engine.play(Head(307, framing="length", more=(("location", f"{other.url}/v1/chat/completions"),)))
        attempt = await TimedClient(RequestTimeouts()).ask(target(engine), b"{}")

    assert attempt.status == 307 and other.requests == []


def test_a_key_comes_from_the_environment_or_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "key").write_text("sk-1\n", "utf-8")
    monkeypatch.setenv("KEY", " sk-2 ")
    assert read_key(variable="KEY") == "sk-2"
    assert read_key(file=tmp_path / "key") == "sk-1"
    assert read_key() == ""


@pytest.mark.parametrize("key", ["", "two words", "sk-1\r\nx-evil: 1", "clé"])
def test_what_cannot_be_a_key_is_refused_and_not_shown(key: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KEY", key)
    with pytest.raises(RunError, match="the environment variable KEY holds no key") as caught:
        read_key(variable="KEY")
    assert not key.strip() or key.strip() not in str(caught.value)
