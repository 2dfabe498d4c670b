"""A Docker Engine of our own, an image with the real llama.cpp, and the rule that nothing is left behind."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from deploy.drivers.docker import DockerEngine
from deploy.drivers.docker_client import Docker
from deploy.engine.spec import EngineSpec
from tests.docker import image
from tests.docker.daemon import MISSING, Daemon, own_daemon

MODELS = Path(__file__).parents[2] / "models"
REPOSITORY = "manners-test-engine"


def pytest_configure(config: pytest.Config) -> None:
    """The SDK forgets the socket that it could not connect; here daemons go away on purpose."""
    config.addinivalue_line("filterwarnings", "ignore:unclosed <socket:ResourceWarning")


@pytest.fixture(scope="session")
def daemon() -> Iterator[Daemon]:
    """A daemon that lives as long as the tests."""
    if not Daemon.is_possible():
        pytest.skip(MISSING)
    with own_daemon() as it:
        yield it


@pytest.fixture(scope="session")
def image_id(daemon: Daemon) -> str:
    """The image with llama.cpp's server, once a session."""
    with daemon.api() as api:
        return image.build(api, REPOSITORY)


@pytest.fixture
def spec(image_id: str) -> EngineSpec:
    """The nano model in a container of that image."""
    return EngineSpec(
        name="nano",
        dialect="llama-server",
        driver="docker",
        artefact=MODELS / "annie-nano-q4_k_m",
        image=image_id,
        gpu="none",
        args=("--ctx-size", "1024"),
    )


@pytest.fixture
def other(spec: EngineSpec) -> EngineSpec:
    """Another engine of the same image: the model that it is compared with."""
    return replace(spec, name="nano-f16", artefact=MODELS / "annie-nano-f16")


@pytest.fixture
def client(daemon: Daemon) -> Iterator[Docker]:
    """What the driver talks through."""
    it = Docker(daemon.url)
    yield it
    it.close()


@pytest.fixture
def engine(client: Docker, tmp_path: Path, daemon: Daemon) -> Iterator[Callable[..., DockerEngine]]:
    """Makes engines of one gateway; what they leave is cleared away."""

    def make(spec: EngineSpec, **given: Any) -> DockerEngine:
        return DockerEngine(spec, **{"state_dir": tmp_path, "docker": client, **given})

    yield make
    daemon.clear()
