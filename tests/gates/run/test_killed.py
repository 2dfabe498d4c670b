"""A run that is killed half-way, again and again, ends as one that nobody touched."""

import asyncio
import random
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest

from gates.contracts.sample import Sample
from gates.run.sample_store import read_samples
from gates.run.target import Target
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
