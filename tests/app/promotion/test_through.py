"""A model that thinks aloud takes over, since callers hear none of it; one whose thoughts no filter catches does not."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from app.__main__ import main
from app.config.config import parse
from gates.report.files import open_report
from gates.report.keys import trusted
from gates.report.statement import Statement
from tests.app.promotion.nano import needs_models
from tests.app.promotion.stage import MODELS, stage, tables
from tests.promotion.process import short_suite, written
from tests.script import reply
from tests.scripted_engine import ScriptedEngine

RULES = """
name = "few"
version = 1
judged = "{judged}"
[[run.repeats]]
temperature = 0.0
n = 1
[gates.leak]
tier = "critical"
asks = "greedy"
zero = {{ first = 2 }}
"""


def configured(base: Path, judged: str, aloud: str) -> dict[str, Any]:
    """The stage's engines, one whose template always opens a thought, and a running one."""
    template = (MODELS / "annie-nano-hf" / "chat_template.jinja").read_text("utf-8")
    (base / "always.jinja").write_text(
        template.replace("enable_thinking is defined and enable_thinking is true", "true")
    )
    (base / "few.toml").write_text(RULES.format(judged=judged))
    found = tables(base / "state")
    small = found["engines"]["small"]
    args = [*small["args"], "--chat-template-file", str(base / "always.jinja")]
    thinks, running = {**small, "args": args}, {"dialect": "vllm", "driver": "url", "url": aloud}
    found["engines"] |= {"thinks": thinks, "aloud": {**running, "artefact": small["artefact"]}}
    return {**found, "gates": {"suite": short_suite(base), "policy": str(base / "few.toml")}}


def gated(base: Path, config: dict[str, Any], candidate: str) -> tuple[int, Statement]:
    """`manners gate run`: its exit code, and what it signed."""
    out = base / candidate
    words = [
        "--config",
        str(written(base, config)),
        "--candidate",
        candidate,
        "--baseline",
        "large",
        "--out",
        str(out),
    ]
    code = main(["gate", "run", *words])
    return code, open_report(out / "report.json", trusted([base / "state" / "keys"])).statement


def bad(stated: Statement, arm: str) -> int:
    tally = stated.tally("leak", arm, named=False)
    return 0 if tally is None else tally.bad


@pytest.mark.slow  # real engines are gated, and one is promoted: 15 s
@needs_models
async def test_a_model_that_the_gateway_makes_usable_is_promoted_and_one_that_leaks_untagged_fails_either_way(
    tmp_path: Path,
) -> None:
    async with ScriptedEngine() as engine:
        engine.always(*reply("Okay, the user says hello. I should reply with a short greeting. Hello!"))
        config = configured(tmp_path, "through", engine.url)
        code, stated = await asyncio.to_thread(gated, tmp_path, config, "thinks")
        assert (code, stated.judged) == (0, "through")
        assert [bad(stated, arm) for arm in ("candidate", "engine:candidate", "engine:baseline")] == [0, 2, 0]
        async with stage(tmp_path, parse(config, tmp_path)) as it:
            _, body = await it.post("/admin/reports", (tmp_path / "thinks" / "report.json").read_bytes())
            status, begun = await it.wish("thinks", body["digest"])
            assert status == 202, begun
            events = [data for _, kind, data in await it.events(begun["id"]) if kind == "step"]
            assert events[-1]["phase"] == "succeeded", events[-1]
            found = {data["effect"].split("/")[2]: data["evidence"] for data in events if data["effect"]}
            assert found["identify"]["model"].endswith("annie-nano-q4_k_m.gguf")
            assert found["warm"]["requests"] >= 3
            assert all(good == n for good, n in found["probe"]["good"].values())

        code, stated = await asyncio.to_thread(gated, tmp_path, config, "aloud")
        assert code == 1 and bad(stated, "candidate") == 2
        config = configured(tmp_path, "engine", engine.url)
        for candidate in ("thinks", "aloud"):
            code, stated = await asyncio.to_thread(gated, tmp_path, config, candidate)
            assert code == 1 and bad(stated, "candidate") == 2
