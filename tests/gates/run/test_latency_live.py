"""The latency gate over engines: the schedule is run, the cache is used, it resumes."""

from dataclasses import replace
from pathlib import Path

import pytest

from gates.contracts.case import Sampling
from gates.contracts.errors import RunError
from gates.reply.reply import read_reply
from gates.run.calibrate import calibrate
from gates.run.latency import Schedule, latency_readings, latency_requests
from gates.run.runner import LATENCY_PACE, run
from gates.run.sample_store import SampleStore
from tests.conformance.engines import KINDS, MODELS, serving
from tests.gates.run.parts import SUITE, arm, asked, case, target
from tests.script import Say, Step, event, reply, status, usage
from tests.scripted_engine import ScriptedEngine

PROMPTS = [case("about", "Tell me about yourself"), case("find", "What did Priya say?", tools=True)]
QUIET = Schedule(buckets=(200,), blocks=1, pause_s=(0.0, 0.0))
NAMES = ("latency:candidate", "latency:baseline")


async def test_a_schedule_is_run_in_order_and_resumed_where_it_was_left(tmp_path: Path) -> None:
    async with ScriptedEngine() as engine:
        engine.always(*reply("Hi."))
        asks = latency_requests(SUITE, [arm(n, target(engine)) for n in NAMES], PROMPTS, Sampling(), QUIET)
        first, _ = await asked(engine, tmp_path / "s.jsonl", asks[:7], LATENCY_PACE)
        went = len(engine.requests)
        second, samples = await asked(engine, tmp_path / "s.jsonl", asks, LATENCY_PACE)

    # 4 warm-ups (2 arms, with and without tools) and 8 samples, each behind its turn before.
    assert (first.asked, second.present, second.asked) == (3, 3, 5)
    assert (went, len(engine.requests) - went) == (2 * 7, 2 * (4 + 5))
    assert [s.key for s in samples] == [a.key for a in asks if a.recorded]


async def test_characters_a_token_come_from_two_prompts() -> None:
    async with ScriptedEngine() as engine:
        for tokens in (40, 345):
            engine.play(*status(200, {"choices": [], "usage": {"prompt_tokens": tokens}}))
        density = await calibrate(target(engine))
        sizes = [sum(len(m["content"]) for m in seen.body["messages"]) for seen in engine.requests]

    assert density == round((sizes[1] - sizes[0]) / 305, 1)


@pytest.mark.parametrize(
    "answers, told",
    [
        ([status(400, {"error": {"message": "no such field"}})], "no such field"),
        ([status(200, {"choices": []})], "no usage"),
        ([(*reply("Hi.")[:-2], Say(usage(1)))] * 2, "longer than one of 7"),
        ([(*reply("Hi.")[:-2], Say(event({"choices": []})))], "no usage"),
    ],
    ids=["refused", "no-usage", "same-count", "no-usage-streamed"],
)
async def test_an_engine_that_does_not_count_cannot_be_scheduled(
    answers: list[tuple[Step, ...]], told: str
) -> None:
    async with ScriptedEngine() as engine:
        for answer in answers:
            engine.play(*answer)
        with pytest.raises(RunError, match=told):
            await calibrate(target(engine))


@pytest.mark.slow  # a real engine computes long prompts
@pytest.mark.engine
async def test_of_a_real_engine_all_but_the_last_turn_is_cached(tmp_path: Path) -> None:
    if not (MODELS / KINDS["llama-hermes"].model).exists():
        pytest.skip("the nano models are missing: make nano")
    async with serving(KINDS["llama-hermes"], tmp_path / "state") as engine:
        direct = target(engine.url, "llama-server", served_model="annie-nano")
        density = await calibrate(direct)
        schedule = replace(QUIET, buckets=(150, 300), chars_per_token=density, max_tokens=16)
        asks = latency_requests(SUITE, [arm(name, direct) for name in NAMES], PROMPTS, Sampling(), schedule)
        with SampleStore(tmp_path / "s.jsonl", suite=SUITE) as store:
            await run(asks, dict.fromkeys(NAMES, direct), store, pace=LATENCY_PACE)
            found = latency_readings(store.samples())
            counts = [read_reply(sample) for sample in store.samples()]

    assert 1.0 < density < 5.0
    assert [(r.void, r.failed) for r in found] == [("", "")] * 16
    assert all((r.cached_tokens or 0) > 0.7 * (r.prompt_tokens or 0) for r in counts)
    for counted, one in zip(counts, found, strict=True):
        assert abs((counted.prompt_tokens or 0) - one.slot.bucket) < 0.5 * one.slot.bucket
