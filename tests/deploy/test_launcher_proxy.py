"""The launcher before a Docker Engine that is a script."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import ClientSession, UnixConnector, web

from deploy.drivers.container import Placement, container_name, create_body
from deploy.engine.spec import EngineSpec
from deploy.launcher.policy import EngineCatalogue
from deploy.launcher.proxy import application

DIGEST = "sha256:" + "ab" * 32
INSTANCE = "0123456789ab"


class Engine:
    """Docker, as far as it is asked, and what it was told to do."""

    def __init__(self, body: dict[str, Any]) -> None:
        self.done: list[str] = []
        self.status = 200  # of an inspection
        self._inspected = {
            "Config": {"Labels": {"manners.instance": INSTANCE}},
            "HostConfig": {"Mounts": body["HostConfig"]["Mounts"]},
        }

    async def handle(self, request: web.Request) -> web.StreamResponse:
        if request.method == "GET":
            return web.json_response(self._inspected, status=self.status)
        self.done.append(request.path.rpartition("/")[2])
        return web.json_response({"Id": "abc"}, status=201)


class Place:
    """A state folder and a model, and a launcher for the one engine that uses them."""

    def __init__(self, base: Path) -> None:
        self.base, self.state, self.model = base, base / "state", base / "models" / "annie"
        self.cache = self.state / "caches" / ("ab" * 8)
        self.model.mkdir(parents=True)
        (base / "state").mkdir()
        self.spec = EngineSpec(
            name="spark",
            dialect="vllm",
            driver="docker",
            artefact=self.model,
            image=f"vllm/vllm-openai@{DIGEST}",
        )
        placement = Placement(
            instance=INSTANCE, artefact=DIGEST, model=str(self.model), inside="/model", cache=str(self.cache),
            user="10001:10001",
        )  # fmt: skip
        self.body = create_body(self.spec, placement)
        self.engine = Engine(self.body)
        self.catalogue = EngineCatalogue((self.spec,), INSTANCE, self.state, "10001:10001")

    @asynccontextmanager
    async def launcher(self) -> AsyncIterator[Callable[[str], Any]]:
        docker = web.Application()
        docker.router.add_route("*", "/{path:.*}", self.engine.handle)
        async with (
            _listening(docker, self.base / "docker.sock"),
            _listening(application(self.catalogue, self.base / "docker.sock"), self.base / "launcher.sock"),
            ClientSession(connector=UnixConnector(str(self.base / "launcher.sock"))) as client,
        ):

            async def ask(path: str) -> int:
                create = path.startswith("/containers/create")
                async with client.post(f"http://x{path}", json=self.body if create else None) as answer:
                    return answer.status

            yield ask

    @property
    def create(self) -> str:
        return f"/containers/create?name={container_name(self.spec, INSTANCE)}"


@asynccontextmanager
async def _listening(app: web.Application, path: Path) -> AsyncIterator[None]:
    runner = web.AppRunner(app)
    await runner.setup()
    await web.UnixSite(runner, str(path)).start()
    try:
        yield
    finally:
        await runner.cleanup()


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


async def test_an_engine_is_made_with_its_cache_and_started(place: Place) -> None:
    async with place.launcher() as ask:
        assert await ask(place.create) == 201
        assert place.cache.stat().st_mode & 0o777 == 0o700
        assert await ask("/containers/abc/start") == 201
    assert place.engine.done == ["create", "start"]


@pytest.mark.parametrize("status, told", [(404, 404), (500, 403), (409, 403), (204, 403)])
async def test_what_cannot_be_looked_at_is_neither_started_nor_ended(
    place: Place, status: int, told: int
) -> None:
    place.engine.status = status
    async with place.launcher() as ask:
        assert await ask("/containers/abc/start") == told
        assert await ask("/containers/abc/kill") == told
    assert place.engine.done == []


async def test_a_cache_that_cannot_be_made_is_no_container(place: Place) -> None:
    (place.state / "caches").touch()
    async with place.launcher() as ask:
        assert await ask(place.create) == 403
    assert place.engine.done == []
