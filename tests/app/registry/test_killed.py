"""A writer that is killed at any instant: what it was promised is there, and nothing is there by half."""

import json
import random
import subprocess
import sys
import time
from pathlib import Path

import pytest

from app.registry.registry import Registry

KILLS = 8


def write_and_die(path: Path, chance: random.Random) -> int:
    """The last event that the writer was promised before SIGKILL met it."""
    child = subprocess.Popen(
        [sys.executable, "-m", "tests.app.registry.writer", str(path)], stdout=subprocess.PIPE
    )
    assert child.stdout is not None
    with child, child.stdout:
        promised = 0
        for _ in range(chance.randrange(1, 40)):
            promised = int(child.stdout.readline())
        time.sleep(chance.uniform(0, 0.004))  # into the middle of a transaction, or of two
        child.kill()
        lines = child.stdout.read().splitlines()
    return int(lines[-1]) if lines and lines[-1].isdigit() else promised


def check(path: Path, promised: int) -> None:
    with Registry(path) as registry:
        assert registry.verify_chain().seq >= promised
        events = registry.events(limit=10**6)
        last = {event.operation: json.loads(event.detail)["phase"] for event in events}
        operations = registry.operations()
        assert {op.id: op.phase for op in operations} == {k: v for k, v in last.items() if k != "none"}
        assert all(op.done == (op.phase == "succeeded") for op in operations)
        alias = registry.alias("annie", "live")
        switched = sum(json.loads(event.detail)["phase"] == "switching" for event in events)
        assert (alias.generation if alias else 0) == switched


@pytest.mark.slow  # a process is killed while it writes: 2 s
def test_a_killed_writer_leaves_whole_transactions_and_the_next_goes_on(tmp_path: Path) -> None:
    path, chance = tmp_path / "registry.sqlite", random.Random(6)
    for _ in range(KILLS):
        check(path, write_and_die(path, chance))
