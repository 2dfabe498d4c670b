"""The daemon goes away and comes back: what runs goes on running, and is found by its labels."""

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from deploy.core.errors import DockerError
from deploy.drivers.docker import DockerEngine
from deploy.drivers.docker_client import Docker
from deploy.drivers.factory import remove, running
from deploy.engine.engine import Phase
from deploy.engine.probe import probe
from deploy.engine.spec import EngineSpec, spec_digest
from tests.docker.daemon import Daemon
from tests.scale import PATIENCE

pytestmark = pytest.mark.docker
Make = Callable[..., DockerEngine]


async def test_an_engine_serves_on_while_the_daemon_is_away(
    engine: Make, spec: EngineSpec, daemon: Daemon, client: Docker
) -> None:
    it = engine(spec)
    before = await it.start()
    await asyncio.to_thread(daemon.stop)
    with pytest.raises(DockerError, match="does not answer"):
        await client.version()
    assert before.url is not None and (await probe(before.url, model="nano", deadline_s=PATIENCE)).ok
    await asyncio.to_thread(daemon.start)
    assert (await client.version())["Arch"]
    assert it.state == before
    await it.stop()
    assert it.state.state is Phase.STOPPED
    with daemon.api() as api:
        assert api.containers(all=True) == []


async def test_what_an_earlier_gateway_left_is_found_after_the_daemon_came_back(
    engine: Make, spec: EngineSpec, other: EngineSpec, daemon: Daemon, client: Docker, tmp_path: Path
) -> None:
    kept, orphan = engine(spec), engine(other)
    before = await kept.start()
    await orphan.start()
    await kept.leave()
    await orphan.leave()
    await asyncio.to_thread(daemon.stop)
    await asyncio.to_thread(daemon.start)
    found = {one.engine: one for one in await running((spec,), state_dir=tmp_path, docker=client)}
    assert {name: (one.spec, one.running) for name, one in found.items()} == {
        "nano": (spec_digest(spec), True),
        "nano-f16": (spec_digest(other), True),
    }
    assert await running((spec,), state_dir=tmp_path / "another", docker=client) == ()
    await remove(found["nano-f16"], docker=client)
    again = engine(spec)
    assert (await again.start()).pid == before.pid
    assert [one.engine for one in await running((spec,), state_dir=tmp_path, docker=client)] == ["nano"]
