"""The launcher before a Docker Engine that is a script: no path with a link in it is ever mounted."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import ClientSession, UnixConnector, web

from deploy.core.errors import StartRefused
from deploy.drivers.container import Placement, container_name, create_body
from deploy.drivers.docker import DockerEngine
from deploy.engine.spec import EngineSpec
from deploy.launcher.mounts import identify, sources
from deploy.launcher.policy import EngineCatalogue, RequestNotAllowed
from deploy.launcher.proxy import application

DIGEST = "sha256:" + "ab" * 32
INSTANCE = "0123456789ab"


class Engine:
    """Docker, as far as it is asked: what it was told to do, and a hook before it does it."""

    def __init__(self, body: dict[str, Any]) -> None:
        self.done: list[str] = []
        self.before: Callable[[], object] = lambda: None
        self.status = 200  # of an inspection
        self._inspected = {
            "Config": {"Labels": {"manners.instance": INSTANCE}},
            "HostConfig": {"Mounts": body["HostConfig"]["Mounts"]},
        }

    async def handle(self, request: web.Request) -> web.StreamResponse:
        if request.method == "GET":
            return web.json_response(self._inspected, status=self.status)
        self.before()
        self.done.append(request.path.rpartition("/")[2])
        return web.json_response({"Id": "abc"}, status=201)


class Place:
    """A state folder and a model, and a launcher for the one engine that uses them."""

    def __init__(self, base: Path) -> None:
        self.base, self.state, self.model = base, base / "state", base / "models" / "annie"
        self.cache = self.state / "caches" / ("ab" * 8)
        self.model.mkdir(parents=True)
        self.cache.mkdir(parents=True)
        (base / "elsewhere" / ("ab" * 8)).mkdir(parents=True)
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

    def link(self, path: Path, target: Path) -> None:
        path.rename(self.base / "aside")
        path.symlink_to(target)

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


async def test_what_is_plain_is_made_and_started(place: Place) -> None:
    async with place.launcher() as ask:
        assert await ask(place.create) == 201
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


LINKS = [
    ("the cache", lambda p: p.link(p.cache, Path("/etc"))),
    ("the folder of caches", lambda p: p.link(p.cache.parent, p.base / "elsewhere")),
    ("the state", lambda p: p.link(p.state, p.base / "aside")),
    ("the model", lambda p: p.link(p.model, Path("/etc"))),
    ("the folder of models", lambda p: p.link(p.model.parent, p.base / "aside")),
    ("a cache that is not there", lambda p: p.cache.rmdir()),
]


@pytest.mark.parametrize("change", [change for _, change in LINKS], ids=[name for name, _ in LINKS])
@pytest.mark.parametrize("verb", ["create", "start"])
async def test_a_link_on_the_way_to_a_mount_is_refused(
    place: Place, change: Callable[[Place], None], verb: str
) -> None:
    change(place)
    async with place.launcher() as ask:
        assert await ask(place.create if verb == "create" else "/containers/abc/start") == 403
    assert place.engine.done == []


@pytest.mark.parametrize("put_back", [False, True])
async def test_a_link_that_comes_while_docker_works_ends_the_container(place: Place, put_back: bool) -> None:
    def exchange() -> None:
        place.engine.before = lambda: None
        place.link(place.cache, Path("/etc"))
        if put_back:
            place.cache.unlink()
            (place.base / "aside").rename(place.cache)

    place.engine.before = exchange
    await asyncio.sleep(0.02)  # the kernel's clock ticks
    async with place.launcher() as ask:
        assert await ask("/containers/abc/start") == 403
    assert place.engine.done == ["start", "kill"]


@pytest.mark.parametrize("path", ["", "relative", "/tmp/../etc", "/no/such/place"])
def test_a_source_that_is_no_plain_path_is_refused(path: str) -> None:
    with pytest.raises(RequestNotAllowed):
        identify([path])


def test_sources_are_those_of_a_body_and_of_an_inspection() -> None:
    mounts = [{"Source": "/a"}, {"Source": "/b"}]
    assert sources({"HostConfig": {"Mounts": mounts}}) == ("/a", "/b")
    assert sources({"Mounts": mounts, "HostConfig": {"Mounts": mounts[:1]}}) == ("/a", "/b")
    assert sources({"HostConfig": None}) == ()


@pytest.mark.parametrize("level", ["cache", "caches"])
def test_the_driver_makes_no_cache_behind_a_link(tmp_path: Path, level: str) -> None:
    state, outside = tmp_path / "state", tmp_path / "outside"
    outside.mkdir()
    cache = state / "caches" / ("ab" * 8)
    link = cache if level == "cache" else cache.parent
    link.parent.mkdir(parents=True)
    link.symlink_to(outside)
    (tmp_path / "artefact.json").touch()
    spec = EngineSpec(name="spark", dialect="vllm", driver="docker", artefact=tmp_path, image=f"x@{DIGEST}")
    engine = DockerEngine(spec, state_dir=state)
    assert engine._placing().cache == str(cache)
    with pytest.raises(StartRefused, match="symbolic link"):
        engine._make_cache(cache, "10001:10001")
    assert list(outside.iterdir()) == []
