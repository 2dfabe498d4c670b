"""A candidate that really fills the memory: it is ended, and who serves is not."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.deploy.cgroup import MISSING, own_cgroup

LIMIT = 1 << 30


@pytest.mark.slow  # an engine fills the memory it may have: 3 s
@pytest.mark.engine
def test_a_candidate_that_fills_the_memory_is_ended_before_the_kernel_ends_anybody(
    gguf: Path, tmp_path: Path
) -> None:
    try:
        with own_cgroup() as cgroup:
            cgroup.limit(LIMIT)
            told = _inside(
                cgroup.procs, str(cgroup.folder), "v2" if cgroup.v2 else "v1", str(tmp_path), str(gguf)
            )
    except OSError as error:
        pytest.skip(f"{MISSING} ({error})")
    assert told["why"].startswith("memory_floor: ") and told["candidate"] == "failed"
    assert told["live"] and told["streams"] and told["came_back"]
    assert told["kills"] == 0


def _inside(procs: Path, folder: str, version: str, state: str, gguf: str) -> dict[str, Any]:
    words = [sys.executable, "-m", "tests.deploy.hungry", folder, version, str(LIMIT), state, gguf]
    command = ["sh", "-c", 'echo $$ > "$0" && exec "$@"', str(procs), *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr
    told: dict[str, Any] = json.loads(done.stdout)
    return told
