"""What the gate takes for heard is what a real gateway gives for the same reply of the engine."""

import json
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from app.conformance.suite import run_gateway
from app.engines.heard import hearing
from gates.contracts.dialect import Dialect
from gates.contracts.sample import BASELINE, CANDIDATE, Sample
from gates.reply.reply import read_heard, says_the_same
from gates.run.request import planned_request
from gates.run.runner import Pace, run
from gates.run.sample_store import SampleStore
from gates.run.target import Arm, Target
from gates.suite.load import load_suite
from tests.app.house import configured
from tests.app.promotion.nano import ANNIE, needs_models, running, spec_of
from tests.gates.run.parts import SUITE, case, suite
from tests.script import Head, Say, reply
from tests.scripted_engine import ScriptedEngine

CALL = '{"name": "web_search", "arguments": {"query": "rain"}}'
SAID = {
    "plain": "Good morning.",
    "tagged": "<think>\nThe user greets me.\n</think>\n\nGood morning.",
    "no opening tag": "The user greets me.</think>Good morning.",
    "thoughts only": "<think>The user greets me.",
    "fenced call": f"```json\n{CALL}\n```",
    "call in tags": f"<tool_call>\n{CALL}\n</tool_call>",
    "broken call": '<tool_call>{"name": "web_search", "arg',
    "markdown": "# Weather\n\n* **Rain** in [Pune](http://x).",
    "untagged": "Okay, the user is greeting me. I should answer briefly. Good morning.",
    "nothing": "",
}
"""Replies of engines. A call of an undeclared tool is asked about once more by a gateway, and stands in no row."""
MODELS: Mapping[str, dict[str, Any]] = {
    "default": {},
    "inline": {"reasoning": "inline", "unasked_calls": "text"},
    "voice": {"speech": "plain", "when_nothing_is_left": "Please say that again."},
}


async def both_ways(
    tmp_path: Path,
    engine: str,
    dialect: Dialect,
    settings: Mapping[str, Any],
    cases: Any,
    served: str = "annie",
) -> list[tuple[Sample, Sample]]:
    """Every case of the engine, with what a caller would hear, and of a real gateway before it."""
    table = {"dialect": dialect, "driver": "url", "url": engine}
    config = configured(tmp_path, {"engine": table}, annie={"live": "engine", **settings})
    async with run_gateway(config, served) as (gateway, address):
        abilities = gateway.pool.states()["engine"].abilities
        target = partial(Target, dialect=dialect, artefact="sha256:a", engine="sha256:e")
        heard = hearing(config.models["annie"], dialect, abilities)
        direct = target(url=engine, served_model=served, hearing=heard)
        through = target(url=address, served_model="annie")
        arms = [Arm(CANDIDATE, direct), Arm(BASELINE, through)]
        asks = [planned_request(SUITE, arm, one, cases.sampling, 0) for one in cases.cases for arm in arms]
        with SampleStore(tmp_path / "samples.jsonl", suite=SUITE) as store:
            await run(asks, {CANDIDATE: direct, BASELINE: through}, store, pace=Pace(retries=0))
            found = {(one.key.arm, one.key.case): one for one in store.samples()}
    return [(found[CANDIDATE, one.id], found[BASELINE, one.id]) for one in cases.cases]


def same(direct: Sample, gateway: Sample) -> bool:
    """A reply of which nothing may be said is an error either way: a status of the gateway, since nothing has gone out."""
    ours, theirs = read_heard(direct), read_heard(gateway)
    return says_the_same(ours, theirs) if theirs.error is None else ours.error is not None


@pytest.mark.parametrize("settings", MODELS.values(), ids=MODELS)
async def test_a_recorded_reply_is_heard_as_a_real_gateway_gives_it(
    settings: dict[str, Any], tmp_path: Path
) -> None:
    cases = suite(*(case(name, tools=name != "plain") for name in SAID))
    async with ScriptedEngine() as engine:
        engine.choose = lambda seen: reply(*SAID[seen.body["messages"][-1]["content"]])
        pairs = await both_ways(tmp_path, engine.url, "vllm", settings, cases)
    assert len(pairs) == len(SAID)
    assert [one.key.case for one, other in pairs if not same(one, other)] == []


@pytest.mark.slow  # a real engine is asked, and its bytes are played to a gateway: 4 s
@needs_models
async def test_replies_of_a_real_engine_that_always_thinks_are_heard_as_a_gateway_gives_them(
    tmp_path: Path,
) -> None:
    template = (ANNIE.parent / "annie-nano-hf" / "chat_template.jinja").read_text("utf-8")
    always = tmp_path / "always.jinja"
    always.write_text(template.replace("enable_thinking is defined and enable_thinking is true", "true"))
    nano = load_suite("annie-nano")
    cases = replace(nano, cases=(*nano.of("leak", 1)[:6], *nano.of("tools", 1)[:6]))
    async with running(spec_of(ANNIE, "--chat-template-file", str(always)), tmp_path) as real:
        assert real.url is not None
        asked = Arm(
            CANDIDATE,
            Target(url=real.url, served_model="nano", dialect="llama-server", artefact="", engine=""),
        )
        with SampleStore(tmp_path / "real.jsonl", suite=SUITE) as store:
            asks = [planned_request(SUITE, asked, one, cases.sampling, 0) for one in cases.cases]
            await run(asks, {CANDIDATE: asked.target}, store)
            real_replies = {json.dumps(one.request["messages"]): one for one in store.samples()}
    async with ScriptedEngine() as engine:
        engine.choose = lambda seen: (
            Head(),
            *(Say(read.data) for read in real_replies[json.dumps(seen.body["messages"])].reads),
        )
        pairs = await both_ways(tmp_path, engine.url, "llama-server", {}, cases)
    assert len(pairs) == 12 and all(same(one, other) for one, other in pairs)
    assert any(one.heard is not None for one, _ in pairs)
