"""A model that is there for embeddings: ready by a vector, watched by vectors, and asked for nothing else."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from openai import AsyncOpenAI

import app.engines.backend
from app.config.config import parse
from deploy.engine.probe import embedding_body
from tests.app.house import HELLO, GatewayFixture, config, configured, eventually, nano, run
from tests.scale import PATIENCE
from tests.script import Step, vectors
from tests.scripted_engine import ScriptedEngine, Seen

pytestmark = pytest.mark.asyncio(loop_scope="module")


class Embedder(ScriptedEngine):
    """An engine that can do nothing else. `vector` is what a probe gets; `asked` are the paths it was asked at."""

    def __init__(self) -> None:
        super().__init__()
        self.vector: Sequence[Step] = vectors(0.5, -1.25)
        self.asked: set[str] = set()

    async def script_for(self, seen: Seen) -> Sequence[Step]:
        """Vectors, or a script."""
        self.asked.add(seen.path)
        if seen.path == "/v1/embeddings" and seen.body == embedding_body("scripted"):
            return self.vector
        return await super().script_for(seen)


@asynccontextmanager
async def home_of_vectors(base: Path) -> AsyncIterator[tuple[GatewayFixture, Embedder]]:
    """annie is an embedding model here."""
    async with Embedder() as engine, run(config(engine, base, kind="embeddings"), engine) as it:
        yield it, engine


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def embedder(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[GatewayFixture]:
    """One for the tests that change nothing."""
    async with home_of_vectors(tmp_path_factory.mktemp("state")) as (it, _):
        yield it


async def ready(home: GatewayFixture) -> int:
    """The status of /readyz."""
    return (await home.get(home.url + "/readyz")).status


async def embed(home: GatewayFixture) -> Any:
    """One request for embeddings."""
    async with home.client.post(f"{home.url}/v1/embeddings", json={"model": "annie", "input": "x"}) as reply:
        return reply.status, await reply.json()


async def test_its_engine_is_ready_and_was_asked_for_no_word(embedder: GatewayFixture) -> None:
    """All probes go where it can answer."""
    assert await ready(embedder) == 200
    assert isinstance(embedder.engine, Embedder)
    assert embedder.engine.asked == {"/v1/models", "/v1/embeddings"}
    (engine,) = (await embedder.operate("/admin/engines")).json["engines"]
    assert (engine["state"], engine["kind"]) == ("ready", "embeddings")


CHATS: dict[str, dict[str, Any]] = {
    "chat/completions": {"messages": HELLO},
    "completions": {"prompt": "x"},
    "messages": {"messages": HELLO, "max_tokens": 3},
    "responses": {"input": "x"},
}


@pytest.mark.parametrize("path", CHATS)
async def test_it_is_asked_for_nothing_else(embedder: GatewayFixture, path: str) -> None:
    """A 400 that says where to go, and no engine is troubled or blamed."""
    body = {"model": "annie", **CHATS[path]}
    async with embedder.client.post(f"{embedder.url}/v1/{path}", json=body) as reply:
        assert reply.status == 400
        assert "/v1/embeddings" in (await reply.json())["error"]["message"]
    assert not embedder.engine.requests


async def test_a_watched_engine_that_gives_no_vectors_gets_no_requests_until_it_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(app.engines.backend, "QUIET_SECONDS", 0.05)
    monkeypatch.setattr(app.engines.backend, "LOOK_SECONDS", 0.01)
    async with home_of_vectors(tmp_path) as (home, engine):
        engine.vector = vectors(0.5, None)
        while await ready(home) == 200:
            await asyncio.sleep(0.01)
        line = await home.log.until(1, "probe_failed")
        assert line["reason"] == "error"
        assert (await embed(home))[1]["error"]["code"] == "no_engine"
        engine.vector = vectors(0.5)
        async with asyncio.timeout(PATIENCE):
            while await ready(home) != 200:
                await asyncio.sleep(0.01)


async def test_a_vector_vouches_for_its_engine(tmp_path: Path) -> None:
    """As a token does for others: an engine at work need not be probed."""
    async with home_of_vectors(tmp_path) as (home, _):
        (member,) = home.gateway.pool._backends.values()
        member.seen = float("-inf")
        home.engine.play(*vectors(0.5))
        assert (await embed(home))[0] == 200
        assert member.age < 5


async def test_a_vector_does_not_vouch_for_an_engine_that_should_stream(home: GatewayFixture) -> None:
    """One may work where the other hangs."""
    (member,) = home.gateway.pool._backends.values()
    seen = member.seen
    home.engine.play(*vectors(0.5))
    assert (await embed(home))[0] == 200
    assert member.seen == seen


def tables(**models: dict[str, Any]) -> dict[str, Any]:
    """Two engines and some models."""
    engine = {"dialect": "vllm", "driver": "url", "url": "http://127.0.0.1:9"}
    return {"engines": {"one": engine, "two": engine}, "models": models}


@pytest.mark.parametrize(
    ("models", "kinds"),
    [
        ({"a": {"live": "one"}}, ("chat", "chat")),
        ({"a": {"live": "one", "kind": "embeddings"}}, ("embeddings", "chat")),
        ({"a": {"live": "one", "fallback": ["two"], "kind": "embeddings"}}, ("embeddings", "embeddings")),
        ({"a": {"live": "one", "kind": "embeddings"}, "b": {"live": "one"}}, ("chat", "chat")),
    ],
)
async def test_an_engine_must_stream_unless_only_embeddings_are_asked_of_it(
    tmp_path: Path, models: dict[str, dict[str, Any]], kinds: tuple[str, str]
) -> None:
    engines = parse(tables(**models), tmp_path).engines
    assert (engines["one"].kind, engines["two"].kind) == kinds


@pytest.mark.slow  # an engine is started: 1 s
@pytest.mark.engine
async def test_a_real_engine_embeds_for_a_real_client(tmp_path: Path) -> None:
    """llama.cpp in its embedding mode, up through the gateway, by OpenAI's client (which asks for base64)."""
    engine = nano("annie-nano-q4_k_m", "--embeddings", "--pooling", "mean")
    made = configured(tmp_path, {"nano": engine}, vectors={"live": "nano", "kind": "embeddings"})
    async with run(made) as home:
        await eventually(lambda: home.gateway.pool.is_ready)
        async with AsyncOpenAI(base_url=home.url + "/v1", api_key="none", max_retries=0) as client:
            done = await client.embeddings.create(model="vectors", input=["Hello!", "Hello!", "Trains?"])
        one, same, other = (item.embedding for item in done.data)
        assert done.model == "vectors" and len(one) > 100
        assert one == pytest.approx(same, abs=1e-3) and one != pytest.approx(other, abs=1e-3)
