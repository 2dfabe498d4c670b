"""`manners engine up`, `logs` and `pin` where no container is needed; the others are in tests/docker."""

import asyncio
import json
import signal
import sys
from pathlib import Path

import pytest

from app.__main__ import main
from deploy.memory.lease import Lease, lease_path
from tests.app.api.nanos import MODELS
from tests.deploy.test_process import SERVER

NANO = f"""
[gateway]
state = "state"
[engines.nano]
dialect = "llama-server"
driver = "embedded"
artefact = "{MODELS}/annie-nano-q4_k_m"
args = ["--ctx-size", "512"]
[engines.far]
dialect = "openai"
driver = "url"
url = "http://127.0.0.1:9"
[engines.boxed]
dialect = "vllm"
driver = "docker"
image = "boxed:latest"
[engines.other]
dialect = "vllm"
driver = "process"
artefact = "{MODELS}/annie-nano-hf"
command = ["{sys.executable}", "{SERVER}"]
gpu = "none"
env = {{ VLLM_CPU_KVCACHE_SPACE = "0" }}
[engines.missing]
dialect = "llama-server"
driver = "process"
artefact = "{MODELS}/annie-nano-q4_k_m"
command = ["bin/llama-server"]
args = ["--ctx-size", "512", "--cache-ram", "0"]
[models.annie]
live = "nano"
"""


@pytest.fixture
def config(tmp_path: Path) -> Path:
    """An engine of each driver, and one that is not installed; the image of one is pinned."""
    path = tmp_path / "manners.toml"
    path.write_text(NANO)
    pins = {"images": {"boxed:latest": "sha256:" + "0" * 64}}
    (tmp_path / "engines.lock").write_text(json.dumps(pins))
    return path


def engine(verb: str, *args: str, config: Path) -> int:
    """The command."""
    return main(["engine", verb, *args, "--config", str(config)])


@pytest.mark.parametrize("name", ["nano", pytest.param("other", marks=pytest.mark.slow)])
async def test_an_engine_of_ours_streams_until_the_command_is_interrupted(config: Path, name: str) -> None:
    """It is the command's child, and is gone after it."""
    command = [sys.executable, "-m", "app", "engine", "up", name, "--json", "--config", str(config)]
    process = await asyncio.create_subprocess_exec(
        *command, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None and process.stderr is not None
    async with asyncio.timeout(60):
        told = json.loads(await process.stdout.readline())
        assert b"Ctrl-C" in await process.stderr.readline()
        assert told["engine"] == name and Path(f"/proc/{told['pid']}").exists()
        process.send_signal(signal.SIGINT)
        assert await process.wait() == 0
    assert not Path(f"/proc/{told['pid']}").exists()


def test_a_load_that_is_under_way_is_not_joined(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Two at once can wedge the machine."""
    lease = Lease(lease_path(config.parent / "state"))
    lease.take("op-1")
    assert engine("up", "nano", config=config) == 75
    assert "another engine is being loaded, by op-1" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("up", "none"), 64, "there is no such engine; configured are boxed, far, missing, nano, other"),
        (("down", "nano"), 64, "is a child of its gateway"),
        (("down", "other"), 64, "is a child of its gateway"),
        (
            ("up", "missing"),
            2,
            "bin/llama-server: No such file or directory; install the engine there, or correct its",
        ),
        (("down", "far"), 64, "is somebody else's"),
        (("logs", "nano"), 66, "nano has no log in"),
        (("pin", "nano"), 64, "is no engine with an image; there is: boxed"),
        (("up", "boxed"), 64, "needs the model that it mounts"),
    ],
)
def test_what_cannot_be_done_is_one_line(
    config: Path, capsys: pytest.CaptureFixture[str], words: tuple[str, ...], code: int, said: str
) -> None:
    """And never a traceback."""
    assert engine(*words, config=config) == code
    said_instead = capsys.readouterr().err
    assert said in said_instead and "Traceback" not in said_instead


def test_a_lock_that_is_broken_is_one_line(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """It is part of the configuration."""
    (config.parent / "engines.lock").write_text("{")
    assert engine("list", config=config) == 78
    assert "is not a lock of images" in capsys.readouterr().err


def test_an_image_without_a_pin_says_how_to_pin_it(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A tag alone starts nothing."""
    (config.parent / "engines.lock").unlink()
    assert engine("list", config=config) == 78
    assert "`manners engine pin`" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "words", "code", "said"),
    [
        ("LLAMA_IMAGE_TAG=x:1\n", ("nano",), 64, "--compose: pins all that the file names"),
        (
            "LLAMA_IMAGE_TAG=x:1\n",
            ("--check",),
            66,
            "cpu.env has no lock; manners engine pin --pull --compose",
        ),
        ("LLAMA_IMAGE_TAG=x:1\nhello\n", (), 66, "cpu.env, line 2: 'hello' is not NAME=VALUE"),
        (None, (), 66, "cpu.env: No such file or directory"),
    ],
)
def test_an_env_file_that_cannot_be_pinned_is_one_line(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    text: str | None,
    words: tuple[str, ...],
    code: int,
    said: str,
) -> None:
    """And no lock is written."""
    path = tmp_path / "cpu.env"
    if text is not None:
        path.write_text(text)
    assert main(["engine", "pin", *words, "--compose", str(path)]) == code
    err = capsys.readouterr().err
    assert said in err and err.count("\n") == 1
    assert not (tmp_path / "cpu.lock.env").exists()


def test_what_is_pinned_already_needs_no_docker(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The lock is written, the command that takes it is named, and `--check` finds the two alike."""
    path, lock = tmp_path / "cpu.env", tmp_path / "cpu.lock.env"
    path.write_text("# ours\nLLAMA_IMAGE_TAG=x@sha256:" + "1" * 64 + "\nLLAMA_FILE=a.gguf\n")
    assert main(["engine", "pin", "--compose", str(path)]) == 0
    assert capsys.readouterr().out.endswith(f"docker compose --env-file {lock} up\n")
    assert "LLAMA_IMAGE=x@sha256:" + "1" * 64 in lock.read_text()
    assert main(["engine", "pin", "--check", "--compose", str(path)]) == 0


def test_check_is_for_env_files_alone(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The doctor looks at the others."""
    assert engine("pin", "--check", config=config) == 64
    assert "`manners doctor`" in capsys.readouterr().err
