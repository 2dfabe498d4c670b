"""Several live engines of one model: where requests go, and what becomes of them when one is gone."""

import asyncio
import shutil
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from app.cli.admin_client import AdminClient
from app.config.config import Config, parse
from app.promotion import replicas as replica_watch
from tests.app.api.nanos import MODELS
from tests.app.house import NEVER, TOKEN, Answer, House, eventually, run
from tests.script import Head, Reset, Say, Until, reply, status, text
from tests.scripted_engine import ScriptedEngine


def settings(base: Path, engines: dict[str, str], **model: Any) -> Config:
    """One model; its replicas are these engines at these addresses, unless `model` says otherwise."""
    kind = {"dialect": "llama-server", "driver": "url", "artefact": str(MODELS / "annie-nano-q4_k_m")}
    return parse(
        {
            "gateway": {"listen": "127.0.0.1:0", "admin": "127.0.0.1:0", "state": str(base)},
            "engines": {name: {**kind, "url": url} for name, url in engines.items()},
            "models": {"annie": {"live": list(engines), "timeouts": NEVER, **model}},
        },
        base,
    )


@asynccontextmanager
async def replicas(
    base: Path, names: Sequence[str] = ("one", "two"), **model: Any
) -> AsyncIterator[tuple[House, dict[str, ScriptedEngine]]]:
    """A gateway over scripted engines of these names, all of them up."""
    async with AsyncExitStack() as stack:
        engines = {name: await stack.enter_async_context(ScriptedEngine()) for name in names}
        for engine in engines.values():
            engine.answers["/props"] = {"model_path": "/weights/annie.gguf"}
        config = settings(base, {name: engine.url for name, engine in engines.items()}, **model)
        house = await stack.enter_async_context(run(config, next(iter(engines.values()))))
        pool, live = house.gateway.pool, house.gateway.config.models["annie"].live
        await eventually(
            lambda: all(pool.takes(name) or name not in live for name in names) or len(live) == 1
        )
        await eventually(lambda: all(pool.is_up(name) for name in names))
        yield house, engines


def turn(name: str, number: int) -> list[dict[str, str]]:
    """The messages of a conversation's `number`th question. Those of `y` begin at the replica `two`, those of `z` at `one`."""
    said = [{"role": "system", "content": "You are Annie."}]
    for n in range(number):
        said += [{"role": "user", "content": f"{name} {n}"}, {"role": "assistant", "content": "Yes."}]
    return said[:-1]


def served_by(answer: Answer) -> str:
    assert answer.status == 200, answer.raw
    return answer.headers["x-manners-engine"]


async def test_a_conversation_stays_where_it_began_and_new_ones_are_spread(tmp_path: Path) -> None:
    async with replicas(tmp_path) as (house, _):
        for number in (1, 2, 3):
            went = [served_by(await house.ask(messages=turn(f"caller {n}", number))) for n in range(4)]
            assert went == ["one", "one", "two", "two"]
        metrics = await house.metrics()
        assert metrics("manners_affinity_total", model="annie", result="hit") == 8
        assert metrics("manners_affinity_total", model="annie", result="new") == 4
        assert metrics("manners_affinity_total", result="moved") == 0
        assert {name: metrics("manners_active_engine", engine=name) for name in ("one", "two")} == {
            "one": 1,
            "two": 1,
        }
        assert metrics("manners_engine_in_flight") == 0
        status = (await house.operate("/admin/status")).json["models"]["annie"]
        assert (status["live"], status["replicas"]) == ("one", ["one", "two"])
        serving = {e["name"]: e["serves"] for e in (await house.operate("/admin/engines")).json["engines"]}
        assert serving == {"one": ["annie"], "two": ["annie"]}


@pytest.mark.slow  # engines are started: 2 s
async def test_a_request_that_fails_goes_to_another_replica_and_then_to_the_fallback(tmp_path: Path) -> None:
    async with replicas(tmp_path, ("one", "two", "spare"), live=["one", "two"], fallback=["spare"]) as (
        house,
        engines,
    ):
        engines["one"].play(*status(500))
        assert served_by(await house.ask()) == "two"
        assert not engines["spare"].requests
        engines["one"].play(*status(500))
        engines["two"].play(*status(500))
        assert served_by(await house.ask()) == "spare"
        metrics = await house.metrics()
        assert metrics("manners_failovers_total", model="annie") == 3


async def test_a_conversation_goes_on_elsewhere_when_its_replica_is_gone(tmp_path: Path) -> None:
    async with replicas(tmp_path) as (house, engines):
        assert served_by(await house.ask(messages=turn("z", 1))) == "one"
        engines["one"].always(Reset())
        assert served_by(await house.ask(messages=turn("z", 2))) == "two"
        assert served_by(await house.ask(messages=turn("z", 3))) == "two", "where its cache is now"


async def test_a_replica_that_states_another_model_gets_no_requests(tmp_path: Path) -> None:
    async with AsyncExitStack() as stack:
        one, two = [await stack.enter_async_context(ScriptedEngine()) for _ in range(2)]
        one.answers["/props"] = {"model_path": "/weights/annie.gguf"}
        two.answers["/props"] = {"model_path": "/old/annie-before.gguf"}
        house = await stack.enter_async_context(
            run(settings(tmp_path, {"one": one.url, "two": two.url}), one)
        )
        pool = house.gateway.pool
        await eventually(lambda: pool.takes("one") != pool.takes("two") and pool.refused())
        (wrong,) = pool.refused()
        right = {"one": "two", "two": "one"}[wrong]
        assert [served_by(await house.ask()) for _ in range(4)] == [right] * 4
        line = await house.log.until(1, "replica_refused")
        assert (line["engine"], line["code"]) == (wrong, "mismatch_replica")
        metrics = await house.metrics()
        assert metrics("manners_replica_refused", engine=wrong) == 1
        assert metrics("manners_replica_refused", engine=right) == 0
        ready = await house.get(house.url + "/readyz")
        assert ready.status == 200
        assert ready.json["refused"] == {wrong: f"mismatch_replica: its model is not that of {right}"}
        listed = {e["name"]: e["stays_out"] for e in (await house.operate("/admin/engines")).json["engines"]}
        assert listed[right] is None and "mismatch_replica" in listed[wrong]
        assert "annie-before.gguf" in listed[wrong], "operators see what it says"


STATED = {
    "text": "ftype-canary",
    "half a pair": "\ud800 ftype-canary",
    "colour": "\x1b[31m\nftype-canary",
    "not a number": float("nan"),
    "a list": [["ftype-canary"]],
    "long": "ftype-canary" * 9999,
}


@pytest.mark.parametrize("stated", STATED.values(), ids=STATED.keys())
async def test_what_a_replica_says_of_itself_is_for_operators_and_breaks_nothing(
    tmp_path: Path, stated: Any
) -> None:
    """Neither `/readyz` nor the log has its words, and no word of it is more than can be written down."""
    async with AsyncExitStack() as stack:
        one, two = [await stack.enter_async_context(ScriptedEngine()) for _ in range(2)]
        for engine, what in ((one, "Q4"), (two, stated)):
            engine.answers["/props"] = {
                "model_path": "/weights/annie.gguf",
                "default_generation_settings": {"n_ctx": 64},
                "build_info": "build-canary" if what == "Q4" else f"{what}",
            }
            listed = [{"id": "scripted", "meta": {"ftype": what}}]
            engine.answers["/v1/models"] = {"object": "list", "data": listed}
        house = await stack.enter_async_context(
            run(settings(tmp_path, {"one": one.url, "two": two.url}), one)
        )
        pool = house.gateway.pool
        await eventually(lambda: pool.takes("one") != pool.takes("two"))
        await eventually(lambda: not pool.to_identify() or house.log.of("replica_unknown"))
        ready = await house.get(house.url + "/readyz")
        assert ready.status == 200 and b"canary" not in ready.raw
        assert (await house.operate("/admin/engines")).status == 200
        assert (await house.operate("/admin/status")).status == 200
        assert b"canary" not in house.log.getvalue() and not house.log.of("task_failed")


async def test_a_replica_that_cannot_be_looked_at_keeps_no_other_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first in order breaks what looks at it, again and again; that is counted, and the other serves."""
    facts = replica_watch._facts

    async def odd(engine: Any, spec: Any) -> Any:
        if spec.name == "a":
            raise RecursionError
        return await facts(engine, spec)

    monkeypatch.setattr(replica_watch, "_facts", odd)
    async with AsyncExitStack() as stack:
        a, b = [await stack.enter_async_context(ScriptedEngine()) for _ in range(2)]
        for engine in (a, b):
            engine.answers["/props"] = {"model_path": "/weights/annie.gguf"}
        house = await stack.enter_async_context(run(settings(tmp_path, {"a": a.url, "b": b.url}), a))
        await eventually(lambda: house.gateway.pool.takes("b"))
        assert served_by(await house.ask()) == "b"
        assert (await house.metrics())("manners_task_failures_total", task="replicas") >= 1


async def test_a_replica_that_does_not_say_what_it_is_gets_no_requests_until_it_does(tmp_path: Path) -> None:
    async with replicas(tmp_path, ("one", "two", "spare"), live=["one", "two"], fallback=["spare"]) as (
        house,
        engines,
    ):
        pool = house.gateway.pool
        engines["one"].answers["/props"] = {}
        pool._backends["one"].identified = False  # as after a restart of it
        assert pool.stays_out("one") == "not identified yet"
        assert [served_by(await house.ask()) for _ in range(3)] == ["two"] * 3
        pool.changed.set()
        await house.log.until(3, "replica_identified")
        assert {served_by(await house.ask(messages=turn(name, 1))) for name in "yz"} == {"one", "two"}


async def operate(house: House, path: str) -> tuple[int, Any]:
    async with house.client.post(
        house.admin + path, headers={"authorization": f"Bearer {TOKEN}"}
    ) as response:
        return response.status, await response.json()


async def test_replicas_are_drained_one_by_one(tmp_path: Path) -> None:
    async with replicas(tmp_path, ("one", "two", "spare"), live=["one", "two"], fallback=["spare"]) as (
        house,
        engines,
    ):
        engines["two"].play(
            Head(), Say(text("Well, ")), Until(end := asyncio.Event()), *reply("so it is.")[1:]
        )
        async with house.begin(messages=turn("y", 1)) as open_stream:
            status, said = await operate(house, "/admin/engines/two/drain")
            assert (status, said) == (200, {"engine": "two", "drained": True, "open": 1})
            assert [served_by(await house.ask(messages=turn("y", 2))) for _ in range(3)] == ["one"] * 3
            status, refused = await operate(house, "/admin/engines/one/drain")
            assert (status, refused["error"]["code"]) == (409, "last_replica")
            end.set()
            assert b"[DONE]" in await open_stream.read(), "what it had is answered"
        status, refused = await operate(house, "/admin/engines/spare/drain")
        assert (status, refused["error"]["code"]) == (409, "not_a_replica")
        status, refused = await operate(house, "/admin/engines/nobody/drain")
        assert (status, refused["error"]["code"]) == (404, "engine_not_found")
        client = AdminClient(house.admin, TOKEN)
        said = await asyncio.to_thread(client.call, "POST", "engines/two/undrain", json={})
        assert said == {"engine": "two", "drained": False, "open": 0}
        assert {served_by(await house.ask(messages=turn(name, 1))) for name in "yz"} == {"one", "two"}
        verbs = [event["verb"] for event in (await house.operate("/admin/audit?newest=1")).json["events"]]
        assert [verb for verb in verbs if "drain" in verb] == ["engine.drained", "engine.undrained"]


@pytest.mark.slow
@pytest.mark.engine
async def test_a_replica_whose_weights_are_not_what_its_manifest_says_is_not_used(tmp_path: Path) -> None:
    """A real engine that loads a copy with one byte changed."""
    copy = Path(shutil.copytree(MODELS / "annie-nano-q4_k_m", tmp_path / "copy"))
    (weights,) = copy.glob("*.gguf")
    changed = bytearray(weights.read_bytes())
    changed[-1] ^= 1
    weights.write_bytes(changed)
    engine = {
        "dialect": "llama-server",
        "driver": "embedded",
        "args": ["--ctx-size", "2048", "--threads", "1"],
    }
    tables = {
        "gateway": {"listen": "127.0.0.1:0", "admin": "127.0.0.1:0", "state": str(tmp_path / "state")},
        "engines": {
            "good": {**engine, "artefact": str(MODELS / "annie-nano-q4_k_m")},
            "bad": {**engine, "artefact": str(copy)},
        },
        "models": {"annie": {"live": ["bad", "good"], "timeouts": NEVER}},
    }
    nobody: Any = None
    async with run(parse(tables, tmp_path), nobody) as house:
        pool = house.gateway.pool
        await eventually(lambda: pool.takes("good") and pool.refused())
        assert "mismatch" in pool.refused()["bad"]
        assert [served_by(await house.ask(max_tokens=4)) for _ in range(3)] == ["good"] * 3
