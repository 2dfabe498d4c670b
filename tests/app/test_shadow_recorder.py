"""What is written of finished chats, and what is not: through a whole gateway."""

import asyncio
import io
import json
import stat
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pytest

from app import config
from app import log as logs
from app.config import ConfigError
from app.shadow.record import Taken, is_chosen, parse
from app.shadow.recorder import Recorder, recorder_for
from app.shadow.settings import Shadow
from app.shadow.store import Store
from tests.app import house as houses
from tests.app.house import TOOLS, House
from tests.script import Head, Say, call, finish, reply, role, status

DAY = date(2026, 11, 21)


@asynccontextmanager
async def recording(base: Path, **settings: Any) -> AsyncIterator[House]:
    """A gateway that records all of it, unless told otherwise."""
    async with houses.ScriptedEngine() as engine:
        plain = houses.config(engine, base)
        shadow = Shadow(**{"record": True, "share": 1.0, **settings})
        async with houses.run(plain.model_copy(update={"shadow": shadow}), engine) as it:
            yield it


async def written(house: House) -> list[dict[str, Any]]:
    """Every record, once the writer has written what waits."""
    shadow = house.gateway.shadow
    assert shadow is not None
    await asyncio.to_thread(shadow.close)
    folder = house.gateway.config.state_dir / "shadow"
    return [
        json.loads(line) for path in sorted(folder.glob("*.jsonl")) for line in path.read_text().splitlines()
    ]


def says(house: House, content: str = "It leaves at ten.") -> None:
    house.engine.play(*reply(content))


ASKED = [{"role": "user", "content": "Write to maya@example.org, and call 98765 43210."}]


@pytest.mark.asyncio
async def test_a_chat_is_written_redacted_with_its_calls(tmp_path: Path) -> None:
    async with recording(tmp_path) as house:
        made = call("web_search", '{"query": "maya@example.org", "phone": 9876543210}')
        house.engine.play(Head(), Say(role() + made + finish("tool_calls") + b"data: [DONE]\n\n"))
        await house.ask(messages=ASKED, tools=TOOLS, temperature=0.5, stream=True, user="maya")
        await house.booked()
        (line,) = await written(house)
    assert line["request"] == {
        "messages": [{"role": "user", "content": "Write to EMAIL_A, and call NUMBER_A."}],
        "tools": TOOLS,
        "temperature": 0.5,
    }
    assert line["calls"] == [{"name": "web_search", "arguments": {"query": "EMAIL_A", "phone": "NUMBER_A"}}]
    assert (line["model"], line["engine"], line["thinking"]) == ("annie", "scripted", False)
    assert line["first_content"] is not None and line["breaches"] == []


@pytest.mark.asyncio
async def test_only_its_owner_can_read_it(tmp_path: Path) -> None:
    async with recording(tmp_path) as house:
        says(house)
        await house.ask()
        await house.booked()
        await written(house)
    (path,) = (tmp_path / "shadow").glob("*.jsonl")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


@pytest.mark.asyncio
async def test_breaches_are_written_and_what_was_said_is_not(tmp_path: Path) -> None:
    async with recording(tmp_path) as house:
        says(house, "Here you go:\n* milk\n* **eggs**")
        await house.ask()
        await house.booked()
        (line,) = await written(house)
    assert line["breaches"] == ["markdown"]
    assert "milk" not in json.dumps(line)


@pytest.mark.asyncio
async def test_a_chat_that_failed_is_not_written(tmp_path: Path) -> None:
    async with recording(tmp_path) as house:
        house.engine.play(*status(500))
        assert (await house.ask()).status == 502
        await house.booked()
        assert await written(house) == []


@pytest.mark.asyncio
async def test_nothing_is_made_unless_asked_for(tmp_path: Path) -> None:
    async with houses.house(tmp_path) as house:
        says(house)
        await house.ask()
        assert house.gateway.shadow is None
    assert not (tmp_path / "shadow").exists()


@pytest.mark.asyncio
async def test_a_disk_that_refuses_ends_recording_with_one_warning(tmp_path: Path) -> None:
    (tmp_path / "shadow").write_text("no folder")
    async with recording(tmp_path) as house:
        for _ in range(3):
            says(house)
            assert (await house.ask()).status == 200
            await house.booked()
            assert house.gateway.shadow is not None and house.gateway.shadow._thread is not None
            await asyncio.to_thread(house.gateway.shadow._thread.join)
        assert [line["level"] for line in house.log.lines if line["event"] == "shadow_stopped"] == ["warning"]


def test_the_share_is_chosen_by_the_id() -> None:
    ids = [f"request-{n}" for n in range(4000)]
    chosen = [one for one in ids if is_chosen(one, 0.05)]
    assert 120 < len(chosen) < 280
    assert chosen == [one for one in ids if is_chosen(one, 0.05)]
    assert set(chosen) <= {one for one in ids if is_chosen(one, 0.5)}
    assert all(is_chosen(one, 1.0) for one in ids)


# ------------------------------------------------------------------------------------ days and bounds


def a_record(at: datetime, words: str = "Hello!") -> Taken:
    body = {"messages": [{"role": "user", "content": words}]}
    return Taken(f"id {at}", at, "annie", "live", False, body, (), frozenset(), None)


def a_recorder(base: Path, **settings: Any) -> Recorder:
    log = logs.configure(stream=io.BytesIO())
    return Recorder(Shadow(record=True, **settings), Store(base), log)


def test_days_that_are_too_old_go_with_what_was_answered_to_them(tmp_path: Path) -> None:
    store = Store(tmp_path)
    for day in ("2026-11-10", "2026-11-18", "2026-11-19"):
        store.append(date.fromisoformat(day), b"{}\n")
        store.replay(date.fromisoformat(day)).write_bytes(b"{}\n")
    a_recorder(tmp_path, keep_days=3)._write(a_record(datetime(2026, 11, 22, tzinfo=UTC)))
    assert [str(day) for day in store.days()] == ["2026-11-19", "2026-11-22"]
    assert [path.name for path in (tmp_path / "shadow" / "replay").iterdir()] == ["2026-11-19.jsonl"]


def test_the_oldest_day_makes_room(tmp_path: Path) -> None:
    store = Store(tmp_path)
    store.append(date(2026, 11, 20), b"x" * 600_000)
    store.append(DAY, b"x" * 399_900)
    a_recorder(tmp_path, max_mb=1)._write(a_record(datetime(2026, 11, 21, 9, tzinfo=UTC)))
    assert store.days() == [DAY]


def test_a_day_that_is_full_takes_no_more(tmp_path: Path) -> None:
    Store(tmp_path).append(DAY, b"x" * 999_990)
    a_recorder(tmp_path, max_mb=1)._write(a_record(datetime(2026, 11, 21, 9, tzinfo=UTC)))
    assert Store(tmp_path).size() == 999_990


def test_what_is_too_old_goes_where_nothing_is_recorded_any_more(tmp_path: Path) -> None:
    Store(tmp_path).append(date(2020, 1, 1), b"{}\n")
    assert (
        recorder_for(houses.config("http://127.0.0.1:9", tmp_path), logs.configure(stream=io.BytesIO()))
        is None
    )
    assert Store(tmp_path).days() == []


def test_a_torn_line_is_passed_over_and_a_record_is_read_once(tmp_path: Path) -> None:
    at = datetime(2026, 11, 21, 9, tzinfo=UTC)
    recorder = a_recorder(tmp_path)
    recorder._write(a_record(at))
    recorder._write(a_record(at))
    Store(tmp_path).append(DAY, b'{"schema": "manners/sh')
    (record,) = Store(tmp_path).records(at)
    assert record.request["messages"][0]["content"] == "Hello!"
    assert parse(b"[]") is None


def test_a_pattern_that_is_none_is_refused(tmp_path: Path) -> None:
    for pattern, why in (("(", "is no pattern"), ("a*", "fits an empty text")):
        tables = {
            "engines": {"e": {"dialect": "openai", "driver": "url", "url": "http://127.0.0.1:9"}},
            "models": {"annie": {"live": "e"}},
            "shadow": {"redact": [pattern]},
        }
        with pytest.raises(ConfigError, match=why):
            config.parse(tables, tmp_path)
