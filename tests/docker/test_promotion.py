"""Whole promotions over containers: in, back, after an end of gateway and daemon, and not at all."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from app.config.config import Config, parse
from deploy.drivers.docker_client import shared
from tests.app.promotion.stage import ENGINES, callers, stage, tables
from tests.app.promotion.stage import quick as quick
from tests.docker.daemon import Daemon

pytestmark = [pytest.mark.docker, pytest.mark.usefixtures("quick")]


@pytest.fixture
def config(
    daemon: Daemon, image_id: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Config]:
    """`small` and `large` in containers, over the daemon that the environment names."""
    monkeypatch.setenv("DOCKER_HOST", daemon.url)
    shared.cache_clear()
    found: dict[str, Any] = tables(tmp_path)
    del found["engines"]["stranger"]
    for table in found["engines"].values():
        table |= {"driver": "docker", "image": image_id, "gpu": "none"}
    yield parse(found, tmp_path)
    shared().close()
    shared.cache_clear()
    daemon.clear()


async def engines(daemon: Daemon) -> dict[str, str]:
    """The engines whose containers run, and their ids. Asked off the loop: callers are being served on it."""

    def ask() -> dict[str, str]:
        with daemon.api() as api:
            return {one["Labels"]["manners.engine"]: one["Id"] for one in api.containers()}

    return await asyncio.to_thread(ask)


async def test_no_reply_is_lost_while_containers_are_promoted_and_rolled_back(
    config: Config, daemon: Daemon, tmp_path: Path
) -> None:
    async with stage(tmp_path, config) as it, callers(it.house, 2) as crowd:
        assert (await it.promote("large"))["phase"] == "succeeded"
        assert set(await engines(daemon)) == {"large"}
        assert (await it.rollback())["phase"] == "succeeded"
        assert set(await engines(daemon)) == {"small"}
    assert [wrong for caller in crowd for wrong in caller.wrong] == []
    assert {name for caller in crowd for name in caller.engines} == set(ENGINES)
