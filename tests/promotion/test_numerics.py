"""A verdict holds for what computed it: over real engines, one with another type of KV cache.

The report of `fp4` states what `fp4` was seen to compute with; `edited` is the same weights with an eight-bit cache.
"""

from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from app.config.config import Config, parse
from deploy.drivers.embedded import EmbeddedEngine
from gates.contracts.numerics import Numerics
from gates.policy.load import FILES
from tests.app.promotion.stage import Stage, stage, statement, tables
from tests.app.promotion.stage import quick as quick

pytestmark = [pytest.mark.promotion, pytest.mark.engine, pytest.mark.timeout(300)]


def configured(folder: Path, rule: str) -> Config:
    """`edited` has another cache than `fp4`; the policy is annie-nano's with this table."""
    wanted = tables(folder / "state")
    engines, fp4 = wanted["engines"], wanted["engines"]["fp4"]
    engines["edited"] = {**fp4, "args": [*fp4["args"], "--cache-type-k", "q8_0"]}
    policy = folder / "policy.toml"
    policy.write_text(
        (FILES.folder / "annie-nano.toml").read_text("utf-8") + f"\n[numerics]\n{rule}\n", "utf-8"
    )
    wanted["gates"]["policy"] = str(policy)
    return parse(wanted, folder)


_SEEN: dict[str, Numerics] = {}


async def seen(it: Stage, name: str) -> Numerics:
    """What an engine computes with, as a gate run asks it: it is started and ended, once for all tests."""
    if name not in _SEEN:
        engine = EmbeddedEngine(it.config.engines[name], state_dir=it.config.state_dir / "gate")
        await engine.start()
        try:
            _SEEN[name] = (await engine.describe())["numerics"]
        finally:
            await engine.stop()
    return _SEEN[name]


async def report(it: Stage, numerics: Numerics) -> str:
    """A report of `fp4`."""
    made = statement(it.config, "fp4", "small").candidate
    return await it.report("fp4", "small", candidate=replace(made, numerics=numerics))


async def promoted(it: Stage, engine: str, digest: str) -> Any:
    """The operation as it ended."""
    status, operation = await it.wish(engine, digest)
    assert status == 202, operation
    return await it.ended(operation["id"])


async def refused_before_the_start(it: Stage) -> None:
    numerics = await seen(it, "fp4")
    assert numerics == Numerics(kv_cache="K f16, V f16")
    status, body = await it.wish("edited", await report(it, numerics))
    assert (status, body["error"]["code"]) == (409, "mismatch_numerics"), body
    said = body["error"]["message"]
    assert "KV cache was K f16, V f16 in the report and is K q8_0, V f16 here" in said
    assert "manners gate run --candidate edited --baseline small" in said
    assert 'may_differ = ["kv_cache"]' in said


async def let_in_with_the_key(it: Stage) -> None:
    ended = await promoted(it, "edited", await report(it, await seen(it, "fp4")))
    assert ended["phase"] == "succeeded", ended
    answer = await it.house.ask()
    assert (answer.status, answer.headers["x-manners-engine"]) == (200, "edited")


async def refused_once_it_runs(it: Stage) -> None:
    """A kernel that only a running engine could name, and does not."""
    stated = replace(await seen(it, "fp4"), kernel="MarlinNvFp4LinearKernel")
    ended = await promoted(it, "fp4", await report(it, stated))
    assert ended["error"]["code"] == "mismatch_numerics", ended
    assert (
        "kernel was MarlinNvFp4LinearKernel in the report and is not known here" in ended["error"]["message"]
    )
    assert (await it.house.ask()).headers["x-manners-engine"] == "small"


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize(
    "rule, what",
    [
        ("may_differ = []", refused_before_the_start),
        ('may_differ = ["kv_cache"]', let_in_with_the_key),
        ("required = true", refused_once_it_runs),
    ],
)
async def test_a_report_opens_the_door_to_what_computes_as_it_says(
    tmp_path: Path, rule: str, what: Callable[[Stage], Awaitable[None]]
) -> None:
    async with stage(tmp_path, configured(tmp_path, rule)) as it:
        await what(it)
