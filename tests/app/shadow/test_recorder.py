"""What is written of finished chats, and what is not: through a whole gateway."""

import asyncio
import io
import json
import resource
import stat
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from app.config import config
from app.config.config import ConfigError, Shadow
from app.shadow.recorder import Recorder, recorder_for
from app.shadow.store import Store
from app.telemetry import log as logs
from deploy.engine.samples import SAMPLES
from tests.app import house as houses
from tests.app.house import TOOLS, GatewayFixture
from tests.app.shadow.records import AT, record
from tests.scale import PATIENCE
from tests.script import Head, Say, call, finish, reply, role, status
from tests.scripted_engine import ScriptedEngine


def day_file(base: Path) -> Path:
    return base / "shadow" / f"{AT.date()}.jsonl"


@asynccontextmanager
async def recording(
    base: Path, media: list[str] | None = None, **settings: Any
) -> AsyncIterator[GatewayFixture]:
    """A gateway that records all of it, unless told otherwise."""
    async with ScriptedEngine() as engine:
        plain = houses.config(engine, base, media=media)
        shadow = Shadow(**{"record": True, "share": 1.0, **settings})
        async with houses.run(plain.model_copy(update={"shadow": shadow}), engine) as it:
            yield it


async def written(house: GatewayFixture) -> list[dict[str, Any]]:
    """Every record, once the writer has written what waits."""
    shadow = house.gateway.shadow
    assert shadow is not None
    await asyncio.to_thread(shadow.close)
    folder = house.gateway.config.state_dir / "shadow"
    return [
        json.loads(line) for path in sorted(folder.glob("*.jsonl")) for line in path.read_text().splitlines()
    ]


def says(house: GatewayFixture, content: str = "It leaves at ten.") -> None:
    house.engine.play(*reply(content))


ASKED = [{"role": "user", "content": "Write to maya@example.org, and call 98765 43210."}]


@pytest.mark.asyncio
async def test_a_chat_is_written_redacted_and_without_its_reply(tmp_path: Path) -> None:
    async with recording(tmp_path) as house:
        made = call("web_search", '{"query": "milk"}')
        house.engine.play(Head(), Say(role() + made + finish("tool_calls") + b"data: [DONE]\n\n"))
        await house.ask(messages=ASKED, tools=TOOLS, temperature=0.5, stream=True, user="maya")
        await house.booked()
        (line,) = await written(house)
    assert line["request"] == {
        "messages": [{"role": "user", "content": "Write to EMAIL_A, and call NUMBER_A."}],
        "tools": TOOLS,
        "temperature": 0.5,
        "max_tokens": 1024,
    }
    assert (line["model"], line["engine"], line["thinking"]) == ("annie", "scripted", False)
    assert "milk" not in json.dumps(line)


@pytest.mark.asyncio
async def test_only_its_owner_can_read_what_was_asked_and_nobody_what_was_said(tmp_path: Path) -> None:
    async with recording(tmp_path) as house:
        house.engine.play(*status(500))
        assert (await house.ask()).status == 502  # it is not written
        await house.booked()
        says(house, "Here you go:\n* milk\n* **eggs**")
        await house.ask()
        await house.booked()
        (line,) = await written(house)
    assert "milk" not in json.dumps(line)
    (path,) = (tmp_path / "shadow").glob("*.jsonl")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


@pytest.mark.asyncio
async def test_a_chat_with_an_image_is_not_written(tmp_path: Path) -> None:
    """Nobody redacts an image, and a replay without it would ask something else."""
    async with recording(tmp_path, media=["image"]) as home:
        shown = [
            {
                "role": "user",
                "content": [SAMPLES["image"], {"type": "text", "text": "What do you make of it?"}],
            }
        ]
        assert (await home.ask(messages=shown)).status == 200
        await home.booked()
        assert await written(home) == []


@pytest.mark.asyncio
async def test_nothing_is_made_unless_asked_for(tmp_path: Path) -> None:
    async with houses.house(tmp_path) as house:
        says(house)
        await house.ask()
        assert house.gateway.shadow is None
    assert not (tmp_path / "shadow").exists()


@pytest.mark.asyncio
async def test_the_callers_id_decides_nothing(tmp_path: Path) -> None:
    async with recording(tmp_path, share=0.5) as house:
        shadow = house.gateway.shadow
        assert shadow is not None
        drawn = iter([0.5, 0.49, 0.99, 0.0])
        shadow._chance = lambda: next(drawn)
        for _ in range(4):
            says(house)
            await house.ask(headers={"x-request-id": "the same id"})
            await house.booked()
        first, second = await written(house)
    assert first["id"] != second["id"]
    assert "the same id" not in json.dumps([first, second])


# ------------------------------------------------------------------------------------ days and bounds


def a_recorder(base: Path, dropped: list[str] | None = None, **settings: Any) -> Recorder:
    log = logs.configure(stream=io.BytesIO())
    count = ([] if dropped is None else dropped).append
    return Recorder(Shadow(record=True, **settings), Store(base), log, count)


def test_days_that_are_too_old_go_also_where_nothing_is_recorded_any_more(tmp_path: Path) -> None:
    """With the replies that an earlier version kept."""
    store, old = Store(tmp_path), tmp_path / "shadow" / "replay"
    for at in (datetime(2020, 1, 1, tzinfo=UTC), AT - timedelta(4), AT - timedelta(3)):
        store.append(record(at=at))
    old.mkdir()
    a_recorder(tmp_path, keep_days=3)._write(record())
    assert [*store.days()] == [str((AT - timedelta(3)).date()), str(AT.date())]
    assert not old.exists()
    store.append(record(at=datetime(2020, 1, 1, tzinfo=UTC)))
    log = logs.configure(stream=io.BytesIO())
    assert recorder_for(houses.config("http://127.0.0.1:9", tmp_path), log, list[str]().append) is None
    assert "2020-01-01" not in store.days()


def test_records_that_fill_their_limit_are_no_more(tmp_path: Path) -> None:
    dropped: list[str] = []
    path = day_file(tmp_path)
    path.parent.mkdir()
    path.write_bytes(b"x" * 999_990)
    a_recorder(tmp_path, dropped, max_mb=1)._write(record())
    assert (path.stat().st_size, dropped) == (999_990, ["limit"])


def test_a_line_that_is_no_record_is_passed_over(tmp_path: Path) -> None:
    """What an earlier version wrote beside today's fields is no fault."""
    a_recorder(tmp_path)._write(record())
    path = day_file(tmp_path)
    of_0_3 = json.loads(path.read_text()) | {
        "reply": "Hi",
        "consent": "yes",
        "at": "2026-11-21T09:00:00.000+00:00",
    }
    with path.open("a") as file:
        file.write(f'{json.dumps(of_0_3)}\n[]\n{"[" * 100_000}\n{{"schema": "manners/sh')
    first, second = Store(tmp_path).records(AT)
    assert first == second and first.request["messages"][0]["content"] == "Hello!"


def test_a_pattern_that_is_none_is_refused(tmp_path: Path) -> None:
    for pattern, why in (
        ("(", "is not a valid pattern of RE2: missing"),
        ("(?<=a)b", "RE2 has no lookaround"),
        (r"(a)\1", "no back references"),
        ("a*", "matches an empty text"),
    ):
        tables = {
            "engines": {"e": {"dialect": "openai", "driver": "url", "url": "http://127.0.0.1:9"}},
            "models": {"annie": {"live": "e"}},
            "shadow": {"redact": [pattern]},
        }
        with pytest.raises(ConfigError, match=why):
            config.parse(tables, tmp_path)


# ------------------------------------------------------------------------------------------- faults


def test_recording_goes_on_when_the_disk_does_and_nothing_is_torn(tmp_path: Path) -> None:
    dropped: list[str] = []
    recorder, path = a_recorder(tmp_path, dropped), day_file(tmp_path)
    recorder._write(record("one"))
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (path.stat().st_size + 40, hard))
        recorder._write(record("two"))  # 40 bytes of it fit
        recorder._write(record("three"))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    recorder._write(record("four"))
    kept = [json.loads(line)["request"]["messages"][0]["content"] for line in path.read_bytes().splitlines()]
    assert (kept, dropped) == (["one", "four"], ["disk", "disk"])


def test_a_record_that_cannot_be_redacted_is_counted(tmp_path: Path) -> None:
    dropped: list[str] = []
    secrets = " ".join(f"password={n:04x}" for n in range(100))
    for chat in (record(secrets), record(request={})):
        a_recorder(tmp_path, dropped)._write(chat)
    assert dropped == ["too_many_secrets", "error"]
    assert not (tmp_path / "shadow").exists()


@pytest.mark.asyncio
async def test_what_finds_the_queue_full_is_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("app.shadow.recorder.WAITING", 1)
    async with recording(tmp_path) as house:
        shadow = house.gateway.shadow
        assert shadow is not None
        go = threading.Event()
        monkeypatch.setattr(shadow, "_write", lambda chat: go.wait(PATIENCE))
        for _ in range(4):
            says(house)
            await house.ask()
            await house.booked()
        counted = (await house.metrics())("manners_shadow_dropped_total", reason="queue_full")
        go.set()
    assert counted in (2, 3)  # the worker holds one or has not begun, and one waits
