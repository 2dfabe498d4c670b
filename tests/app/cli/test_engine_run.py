"""`manners engine up`, `logs` and `pin` where no container is needed; the others are in tests/docker."""

import asyncio
import json
import signal
import sys
from pathlib import Path

import pytest

from app.__main__ import main
from tests.app.api.nanos import MODELS

NANO = f"""
[gateway]
state = "state"
[engines.nano]
dialect = "llama-server"
driver = "embedded"
artefact = "{MODELS}/annie-nano-q4_k_m"
args = ["--ctx-size", "512"]
[models.annie]
live = "nano"
"""


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "manners.toml"
    path.write_text(NANO)
    return path


async def test_an_engine_of_ours_streams_until_the_command_is_interrupted(config: Path) -> None:
    """It is the command's child, and is gone after it."""
    command = [sys.executable, "-m", "app", "engine", "up", "nano", "--json", "--config", str(config)]
    process = await asyncio.create_subprocess_exec(
        *command, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None and process.stderr is not None
    async with asyncio.timeout(60):
        told = json.loads(await process.stdout.readline())
        assert b"Ctrl-C" in await process.stderr.readline()
        assert told["engine"] == "nano" and Path(f"/proc/{told['pid']}").exists()
        process.send_signal(signal.SIGINT)
        assert await process.wait() == 0
    assert not Path(f"/proc/{told['pid']}").exists()


def test_what_is_pinned_already_needs_no_docker(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The lock is written, and the command that takes it is named."""
    path, lock = tmp_path / "cpu.env", tmp_path / "cpu.lock.env"
    path.write_text("# ours\nLLAMA_IMAGE_TAG=x@sha256:" + "1" * 64 + "\nLLAMA_FILE=a.gguf\n")
    assert main(["engine", "pin", "--compose", str(path)]) == 0
    assert capsys.readouterr().out.endswith(f"docker compose --env-file {lock} up\n")
    assert "LLAMA_IMAGE=x@sha256:" + "1" * 64 in lock.read_text()
