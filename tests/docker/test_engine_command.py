"""`manners engine pin`, `up`, `logs` and `down`, over containers: what an operator types."""

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from app.__main__ import main
from deploy.drivers.docker_client import shared
from deploy.engine.probe import probe
from tests.docker.conftest import MODELS, REPOSITORY
from tests.docker.daemon import Daemon
from tests.scale import PATIENCE

pytestmark = pytest.mark.docker

CONFIG = f"""
[gateway]
state = "state"
[engines.nano]
dialect = "llama-server"
driver = "docker"
artefact = "{MODELS}/annie-nano-q4_k_m"
image = "{REPOSITORY}:latest"
gpu = "none"
[models.annie]
live = "nano"
"""


@pytest.fixture
def config(daemon: Daemon, image_id: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A configuration that names a tag, and the daemon as the environment names it."""
    monkeypatch.setenv("DOCKER_HOST", daemon.url)
    shared.cache_clear()
    path = tmp_path / "manners.toml"
    path.write_text(CONFIG)
    yield path
    shared().close()
    shared.cache_clear()
    daemon.clear()


async def engine(verb: str, *args: str, config: Path) -> int:
    """The command, which has an event loop of its own."""
    return await asyncio.to_thread(main, ["engine", verb, *args, "--config", str(config)])


async def test_an_operator_pins_starts_reads_and_ends_an_engine(
    config: Path, image_id: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert await engine("up", "nano", config=config) == 78
    assert "`manners engine pin`" in capsys.readouterr().err
    assert await engine("pin", config=config) == 0
    assert f"nano: {REPOSITORY}:latest is {image_id}" in capsys.readouterr().out
    assert await engine("up", "nano", "--json", config=config) == 0
    told = json.loads(capsys.readouterr().out)
    assert (await probe(told["url"], model="nano", deadline_s=PATIENCE)).ok
    assert await engine("up", "nano", "--json", config=config) == 0
    assert json.loads(capsys.readouterr().out)["pid"] == told["pid"]
    assert await engine("logs", "nano", config=config) == 0
    assert "listening at" in capsys.readouterr().out
    assert await engine("down", "nano", config=config) == 0
    assert "was killed by signal 15" in capsys.readouterr().out
    assert await engine("down", "nano", config=config) == 0
    assert "there is no container" in capsys.readouterr().out
    assert await engine("logs", "nano", config=config) == 0
