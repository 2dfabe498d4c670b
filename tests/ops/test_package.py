"""What `pip install` makes of this tree, in an environment of its own: it serves, wherever it is started."""

import json
import os
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.ops.facts import ROOT

pytestmark = [pytest.mark.ops, pytest.mark.timeout(600)]

ENDPOINT = "http://127.0.0.1:8080/v1/chat/completions"


@pytest.fixture(scope="module")
def commands(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The `bin` of an environment with nothing but the locked packages and this program, installed from a clone."""
    folder = tmp_path_factory.mktemp("installed")
    source, environment = folder / "source", folder / "venv"
    subprocess.run(["git", "clone", "-q", ROOT, source], check=True)
    subprocess.run([sys.executable, "-m", "venv", environment], check=True)
    # Not compiled: most of it is never imported. uv takes seconds for the locked packages where pip takes a minute; pip
    # installs them in the image (`Dockerfile`).
    uv: list[str | Path] = [
        sys.executable,
        "-m",
        "uv",
        "pip",
        "install",
        "-q",
        "--python",
        environment / "bin/python",
    ]
    pip: list[str | Path] = [
        environment / "bin/pip",
        "install",
        "-q",
        "--disable-pip-version-check",
        "--no-compile",
    ]
    wanted: list[list[str | Path]] = [
        [*uv, "--no-deps", "--require-hashes", "-r", source / "requirements/gateway.txt"],
        [*pip, source],
    ]
    for argv in wanted:
        done = subprocess.run(argv, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr[-4000:]
    return environment / "bin"


@pytest.fixture
def served(commands: Path, tmp_path: Path) -> Iterator[str]:
    """What `manners serve` prints up to its last line, in an empty folder."""
    (empty := tmp_path / "empty").mkdir()
    environment = {"PATH": os.environ["PATH"], "HOME": str(tmp_path)}
    server = subprocess.Popen(
        [commands / "manners", "serve"], cwd=empty, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )  # fmt: skip
    assert server.stdout is not None
    told = []
    for line in server.stdout:
        told.append(line)
        if line.startswith("Ready:"):
            break
    yield "".join(told)
    server.send_signal(signal.SIGTERM)
    server.communicate(timeout=60)


def test_an_installed_gateway_answers_in_an_empty_folder(served: str) -> None:
    assert "Ready:" in served
    body = {"model": "annie", "messages": [{"role": "user", "content": "Good morning!"}]}
    asked = urllib.request.Request(ENDPOINT, json.dumps(body).encode(), {"content-type": "application/json"})
    with urllib.request.urlopen(asked, timeout=60) as reply:
        assert json.load(reply)["choices"][0]["message"]["content"]
