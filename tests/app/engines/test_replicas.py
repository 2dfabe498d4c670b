"""Several live engines of one model: where requests go, and what becomes of them when one is gone."""

import shutil
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from app.config.config import Config
from app.engines.backend import UNIDENTIFIED
from app.promotion import inspection
from tests.app.api.nanos import MODELS
from tests.app.house import NEVER, Answer, GatewayFixture, configured, eventually, nano, run
from tests.script import Reset, status
from tests.scripted_engine import ScriptedEngine

WITH_SPARE: dict[str, Any] = {"names": ("one", "two", "spare"), "live": ["one", "two"], "fallback": ["spare"]}


def settings(base: Path, engines: dict[str, str], **model: Any) -> Config:
    """One model; its replicas are these engines at these addresses, unless `model` says otherwise."""
    kind = {"dialect": "llama-server", "driver": "url", "artefact": str(MODELS / "annie-nano-q4_k_m")}
    tables = {name: {**kind, "url": url} for name, url in engines.items()}
    return configured(base, tables, annie={"live": list(engines), "timeouts": NEVER, **model})


@asynccontextmanager
async def replicas(
    base: Path, names: Sequence[str] = ("one", "two"), told: Mapping[str, Any] | None = None, **model: Any
) -> AsyncIterator[tuple[GatewayFixture, dict[str, ScriptedEngine]]]:
    """A gateway over scripted engines of these names, all of them up; at once if `told` has other answers of some."""
    async with AsyncExitStack() as stack:
        engines = {name: await stack.enter_async_context(ScriptedEngine()) for name in names}
        for name, engine in engines.items():
            engine.answers |= {"/props": {"model_path": "/weights/annie.gguf"}, **(told or {}).get(name, {})}
        config = settings(base, {name: engine.url for name, engine in engines.items()}, **model)
        house = await stack.enter_async_context(run(config, next(iter(engines.values()))))
        pool, live = house.gateway.pool, house.gateway.config.models["annie"].live
        if told is None:
            await eventually(lambda: len(live) == 1 or all(pool.takes(name) for name in live))
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


async def test_a_conversation_stays_where_it_began_until_that_replica_is_gone(tmp_path: Path) -> None:
    async with replicas(tmp_path) as (house, engines):
        for number in (1, 2, 3):
            went = [served_by(await house.ask(messages=turn(f"caller {n}", number))) for n in range(4)]
            assert went == ["one", "one", "two", "two"]
        metrics = await house.metrics()
        assert metrics("manners_affinity_total", model="annie", result="hit") == 8
        assert metrics("manners_affinity_total", model="annie", result="new") == 4
        assert metrics("manners_affinity_total", result="moved") == 0
        assert [metrics("manners_active_engine", engine=name) for name in ("one", "two")] == [1, 1]
        assert metrics("manners_engine_in_flight") == 0
        status = (await house.operate("/admin/status")).json["models"]["annie"]
        assert (status["live"], status["replicas"]) == ("one", ["one", "two"])
        serving = {e["name"]: e["serves"] for e in (await house.operate("/admin/engines")).json["engines"]}
        assert serving == {"one": ["annie"], "two": ["annie"]}
        engines["one"].always(Reset())
        for number in (4, 5):
            assert served_by(await house.ask(messages=turn("caller 0", number))) == "two"


@pytest.mark.slow  # engines are started: 2 s
async def test_a_request_that_fails_goes_to_another_replica_and_then_to_the_fallback(tmp_path: Path) -> None:
    async with replicas(tmp_path, **WITH_SPARE) as (house, engines):
        engines["one"].play(*status(500))
        assert served_by(await house.ask()) == "two"
        assert not engines["spare"].requests
        engines["one"].play(*status(500))
        engines["two"].play(*status(500))
        assert served_by(await house.ask()) == "spare"
        metrics = await house.metrics()
        assert metrics("manners_failovers_total", model="annie") == 3


async def test_a_replica_that_states_another_model_gets_no_requests(tmp_path: Path) -> None:
    told = {"two": {"/props": {"model_path": "/old/annie-before.gguf"}}}
    async with replicas(tmp_path, told=told) as (house, _):
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


@pytest.mark.parametrize(
    "stated",
    ["text-canary", "\ud800 canary", "\x1b[31m\ncanary", [["canary"]], "canary" * 9999],
    ids=["text", "half a pair", "colour", "a list", "long"],
)
async def test_what_a_replica_says_of_itself_is_for_operators_and_breaks_nothing(
    tmp_path: Path, stated: Any
) -> None:
    """Neither `/readyz` nor the log has its words, and no word of it is more than can be written down."""
    told = {
        name: {
            "/props": {
                "model_path": "/weights/annie.gguf",
                "default_generation_settings": {"n_ctx": 64},
                "build_info": build,
            },
        }
        for name, build in (("one", "build-canary"), ("two", stated))
    }
    async with replicas(tmp_path, told=told) as (house, _):
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
    identify = inspection.identify

    async def odd(engine: Any, spec: Any) -> Any:
        if spec.name == "one":
            raise RecursionError
        return await identify(engine, spec)

    monkeypatch.setattr(inspection, "identify", odd)
    async with replicas(tmp_path, told={}) as (house, _):
        await eventually(lambda: house.gateway.pool.takes("two"))
        assert served_by(await house.ask()) == "two"
        assert (await house.metrics())("manners_task_failures_total", task="replicas") >= 1


async def test_a_replica_that_does_not_say_what_it_is_gets_no_requests_until_it_does(tmp_path: Path) -> None:
    async with replicas(tmp_path, **WITH_SPARE) as (house, engines):
        pool = house.gateway.pool
        engines["one"].answers["/props"] = {}
        pool._backends["one"].identify(UNIDENTIFIED)  # as after a restart of it
        assert pool.stays_out("one") == UNIDENTIFIED
        assert [served_by(await house.ask()) for _ in range(3)] == ["two"] * 3
        pool.changed.set()
        await house.log.until(3, "replica_identified")
        assert {served_by(await house.ask(messages=turn(name, 1))) for name in "yz"} == {"one", "two"}


@pytest.mark.slow
@pytest.mark.engine
async def test_replicas_whose_weights_are_not_what_their_manifest_says_are_not_used(tmp_path: Path) -> None:
    """Real engines that load a copy with one byte changed."""
    copy = Path(shutil.copytree(MODELS / "annie-nano-q4_k_m", tmp_path / "copy"))
    (weights,) = copy.glob("*.gguf")
    changed = bytearray(weights.read_bytes())
    changed[-1] ^= 1
    weights.write_bytes(changed)
    args = ("--ctx-size", "2048", "--threads", "1")
    engines = {"one": nano(copy, *args), "two": nano(copy, *args)}
    made = configured(tmp_path / "state", engines, annie={"live": ["one", "two"], "timeouts": NEVER})
    async with run(made, ready=False) as house:
        pool = house.gateway.pool
        await eventually(lambda: len(pool.refused()) == 2)
        assert all("mismatch" in why for why in pool.refused().values())
        assert (await house.ask(max_tokens=4)).status == 503
