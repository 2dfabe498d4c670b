"""A run that is killed half-way, again and again, ends as one that nobody touched."""

import asyncio
import random
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest

from gates.contracts.dialect import Dialect
from gates.contracts.sample import Sample
from gates.reply.reply import Reply, read_reply
from gates.run.sample_store import read_samples
from gates.run.target import Target
from tests.conformance.engines import KINDS, MODELS, serving
from tests.gates.run.child import asks_for, complete
from tests.gates.run.parts import target
from tests.scale import PATIENCE
from tests.scripted_engine import ScriptedEngine

ROOT = Path(__file__).parents[3]


async def kill_one(where: Target, path: Path, words: Sequence[str], samples: int, seconds: float) -> None:
    """Start a run, and end it with SIGKILL so many seconds after its file has so many new lines."""
    argv = ["-m", "tests.gates.run.child", where.url, str(path), where.dialect, *words]
    before = lines(path)
    child = await asyncio.create_subprocess_exec(sys.executable, *argv, cwd=ROOT)
    async with asyncio.timeout(PATIENCE):
        while lines(path) < before + samples and child.returncode is None:
            await asyncio.sleep(0.001)
    await asyncio.sleep(seconds)
    assert child.returncode is None, "it was over before it could be killed"
    child.kill()
    await child.wait()


def lines(path: Path) -> int:
    return path.read_bytes().count(b"\n") if path.exists() else 0


def by_key(path: Path) -> dict[str, Sample]:
    """What is on file; two samples of one key would be refused in the reading."""
    return {sample.key.digest: sample for sample in read_samples(path)}


def raw(sample: Sample) -> bytes:
    return b"".join(read.data for read in sample.reads)


def spoken(reply: Reply) -> tuple[object, ...]:
    """What an engine said, without the ids that it makes up."""
    calls = [(call.name, call.arguments) for call in reply.calls]
    return (reply.content, reply.reasoning, calls, reply.finish_reason, reply.completion_tokens)


@pytest.mark.slow  # gates are killed and go on: 8 s
@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.nightly)])  # the same at other moments
async def test_a_killed_run_is_completed_without_a_loss_or_a_second_asking(tmp_path: Path, seed: int) -> None:
    draw, words = random.Random(seed), [f"word {n}" for n in range(40)]
    async with ScriptedEngine() as engine:
        engine.echo = True
        where, path = target(engine), tmp_path / "samples.jsonl"
        for _ in range(3):
            await kill_one(where, path, words, draw.randint(1, 20), draw.random() / 50)
        torn = path.read_bytes()
        await complete(where, path, words)
        asked = Counter(seen.raw for seen in engine.requests)
        await complete(where, tmp_path / "straight.jsonl", words)

    killed, straight = by_key(path), by_key(tmp_path / "straight.jsonl")
    assert path.read_bytes().startswith(torn[: torn.rindex(b"\n") + 1])
    assert list(killed) == [ask.key.digest for ask in asks_for(where, words)]
    assert {k: raw(s) for k, s in killed.items()} == {k: raw(s) for k, s in straight.items()}
    # What a kill cut short is asked once more, and nothing else is: both arms send the same bytes.
    assert sum(asked.values()) <= len(killed) + 3


@pytest.mark.nightly  # `make test-gate` kills a run over real engines, and none of its samples is lost or asked twice
@pytest.mark.slow  # gates are killed and go on: 7 s
@pytest.mark.engine
async def test_a_killed_run_over_a_real_engine_says_the_same_as_one_in_one_go(tmp_path: Path) -> None:
    dialect: Dialect = "llama-server"
    if not (MODELS / KINDS["llama-hermes"].model).exists():
        pytest.skip("the nano models are missing: make nano")
    words = [
        "Hello!",
        "Tell me about yourself",
        "What is 12 plus 25?",
        "What is the latest news?",
        "Thank you",
    ]
    words += [f"What is {n} plus 5?" for n in range(3, 12)]
    draw, path, straight = random.Random(3), tmp_path / "samples.jsonl", tmp_path / "straight.jsonl"
    async with serving(KINDS["llama-hermes"], tmp_path / "state") as engine:
        where = target(engine.url, dialect)
        for _ in range(2):
            await kill_one(where, path, words, draw.randint(2, 8), draw.random() / 50)
        await complete(where, path, words)
        await complete(where, straight, words)

    said, meant = ({k: read_reply(s) for k, s in by_key(p).items()} for p in (path, straight))
    assert all(reply.complete for reply in said.values())
    assert list(said) == [ask.key.digest for ask in asks_for(where, words)]
    assert {k: spoken(r) for k, r in said.items()} == {k: spoken(r) for k, r in meant.items()}
