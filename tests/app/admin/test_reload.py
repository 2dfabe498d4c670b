"""Reload: all or nothing, told by key name, and nobody who is being served notices."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from app.config.config import Config, ConfigError, parse
from app.registry.errors import StorageFailed
from app.registry.registry import Registry
from tests.app.access.test_keys_live import operate
from tests.app.house import GatewayFixture, eventually, house
from tests.script import DONE, Head, Say, Until, finish, text
from tests.scripted_engine import ScriptedEngine

TABLE = {"dialect": "llama-server", "driver": "url"}


class File:
    """The configuration as it lies on disk: what the next reload reads."""

    def __init__(self, now: Config) -> None:
        self.now: Config | Exception = now

    def __call__(self) -> Config:
        if isinstance(self.now, Exception):
            raise self.now
        return self.now

    def model(self, **changes: Any) -> None:
        """Edit the model."""
        assert isinstance(self.now, Config)
        model = self.now.models["annie"].model_copy(update=changes)
        self.now = self.now.model_copy(update={"models": {"annie": model}})

    def tables(self, **tables: Any) -> None:
        """Write engines and models anew."""
        assert isinstance(self.now, Config)
        new = parse({"gateway": {"state": str(self.now.state_dir)}, **tables}, Path("/"))
        self.now = self.now.model_copy(update={"engines": new.engines, "models": new.models})

    def section(self, name: str, **changes: Any) -> None:
        """Edit a section."""
        assert isinstance(self.now, Config)
        edited = getattr(self.now, name).model_copy(update=changes)
        self.now = self.now.model_copy(update={name: edited})


@asynccontextmanager
async def reloadable(base: Path, **settings: Any) -> AsyncIterator[tuple[GatewayFixture, File]]:
    """A gateway, and the file that it is reloaded from."""
    async with house(base, **settings) as home:
        file = File(home.gateway.config)
        home.gateway.reloader._read = file
        yield home, file


async def reload(home: GatewayFixture) -> Any:
    """The answer to an operator."""
    return await operate(home, "POST", "/admin/reload")


async def test_a_changed_limit_holds_for_the_next_request(tmp_path: Path) -> None:
    async with reloadable(tmp_path) as (home, file):
        long = home.body(messages=[{"role": "user", "content": "Hi"}] * 3)
        assert (await home.ask(long)).status == 200
        file.section("gateway", max_messages=2)
        assert (await reload(home)).json["changed"] == ["gateway.max_messages"]
        assert (await home.ask(long)).status == 400
        event = (await home.operate("/admin/audit?newest=1&limit=1")).json["events"][0]
        assert (event["actor"], event["verb"]) == ("admin", "configuration.reloaded")
        assert event["detail"] == {"changed": ["gateway.max_messages"]}


async def test_a_stream_keeps_what_it_began_with(tmp_path: Path) -> None:
    """It is not cut off, and its reply is made as its model was then; the next one is made anew."""
    go = asyncio.Event()
    async with reloadable(tmp_path) as (home, file):
        home.engine.play(Head(), Say(text("One")), Until(go), Say(text(" two")), Say(finish()), Say(DONE))
        async with home.begin() as response:
            came = await response.content.readany()
            file.model(reasoning="separate", concurrency=1, queue=0)
            assert (await reload(home)).status == 200
            busy = await home.ask()
            assert (busy.status, busy.error["code"]) == (429, "queue_full")
            go.set()
            came += await response.read()
        assert b" two" in came and came.endswith(b"data: [DONE]\n\n")
        assert (await home.ask()).status == 200


async def test_a_model_comes_with_its_engine_and_answers(tmp_path: Path) -> None:
    """The engine was configured, did not run, and has another address now."""
    async with ScriptedEngine() as more, reloadable(tmp_path) as (home, file):
        dead, models = {**TABLE, "url": "http://127.0.0.1:9"}, {"annie": {"live": "scripted"}}
        first = {**TABLE, "url": home.engine.url}
        file.tables(engines={"scripted": first, "more": dead}, models=models)
        assert (await reload(home)).status == 200
        live = {**TABLE, "url": more.url}
        file.tables(engines={"scripted": first, "more": live}, models={**models, "new": {"live": "more"}})
        assert (await reload(home)).json["changed"] == ["engines.more.url", "models.new"]
        await eventually(lambda: home.gateway.pool.is_up("more"))
        assert (await home.ask(model="new")).headers["x-manners-engine"] == "more"
        shown = (await home.operate("/admin/status")).json["models"]["new"]
        assert shown["live"] == "more"
        waived = {"model": "new", "engine": "more", "waives": ["report_missing"], "reason": "its first day"}
        assert (await operate(home, "POST", "/admin/overrides", waived)).status == 201


def break_the_token(file: File) -> None:
    file.section("secrets", admin_token=None)
    assert isinstance(file.now, Config)
    path = file.now.state_dir / "admin.token"
    path.touch(0o600)
    path.write_bytes(b"\xff")


REFUSED: dict[str, tuple[Callable[[File], None], str, str]] = {
    "who is live": (lambda file: file.model(live=("other",)), "restart_required", "models.annie.live"),
    "a fallback": (lambda file: file.model(fallback=("other",)), "restart_required", "a restart is needed for models.annie.fallback:"),
    "a running engine's key, and a model less": (
        lambda file: file.tables(engines={"scripted": {**TABLE, "url": "http://a"}}, models={"b": {"live": "scripted"}}),
        "restart_required", "a restart is needed for engines.scripted.url, models.annie: restart"),
    "a file that is wrong": (lambda file: setattr(file, "now", ConfigError("x.toml: gateway.lisen: unknown key")),
                             "configuration_invalid", "gateway.lisen"),
    "a token that is no text": (break_the_token, "configuration_invalid", "gateway.state: admin.token: not UTF-8 text;"),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
async def test_what_cannot_be_taken_is_named_and_nothing_is_taken(case: str, tmp_path: Path) -> None:
    """Not even that part of the file which could be."""
    break_it, code, key = REFUSED[case]
    async with reloadable(tmp_path) as (home, file):
        file.section("gateway", max_messages=1)
        break_it(file)
        answer = await reload(home)
        assert (answer.status, answer.error["code"]) == (409, code)
        assert key in answer.error["message"]
        assert "max_messages" not in answer.error["message"]
        assert (await home.ask(messages=[{"role": "user", "content": "Hi"}] * 2)).status == 200
        assert (await home.operate("/admin/audit?newest=1&limit=1")).json["events"][0][
            "verb"
        ] != "configuration.reloaded"
        assert (await home.metrics())("manners_reloads_total", result=code) == 1


async def test_keys_of_the_configuration_are_read_again(tmp_path: Path) -> None:
    """One goes, one comes; the listener without keys becomes one with keys."""
    async with reloadable(tmp_path) as (home, file):
        assert (await home.ask()).status == 200
        file.section("secrets", api_keys=("new",))
        assert (await reload(home)).json["changed"] == ["secrets.api_keys"]
        assert (await home.ask()).status == 401
        assert (await home.ask(headers={"authorization": "Bearer new"})).status == 200


async def test_a_reload_that_cannot_be_recorded_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The audit comes before the change, as everywhere."""

    def full(self: Registry, entry: Any) -> None:
        raise StorageFailed("the state folder's disk is full", "state_full")

    async with reloadable(tmp_path) as (home, file):
        file.section("gateway", max_messages=1)
        monkeypatch.setattr(Registry, "note", full)
        assert (await reload(home)).status == 507
        assert (await home.ask(messages=[{"role": "user", "content": "Hi"}] * 2)).status == 200
