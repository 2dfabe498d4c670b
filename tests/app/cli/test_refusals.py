"""What a command cannot do is one line on stderr and an exit code, and never a traceback."""

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import structlog

from app.__main__ import main
from deploy.drivers.url import UrlEngine
from deploy.memory.lease import Lease, lease_path
from tests.app.api.nanos import MODELS

CONFIG = f"""
[gateway]
state = "state"
admin = "127.0.0.1:9"
[engines.nano]
dialect = "llama-server"
driver = "embedded"
artefact = "{MODELS}/annie-nano-q4_k_m"
[engines.stranger]
dialect = "llama-server"
driver = "embedded"
artefact = "{MODELS}/stranger-nano-q4_k_m"
[engines.far]
dialect = "openai"
driver = "url"
url = "http://127.0.0.1:9"
[engines.boxed]
dialect = "vllm"
driver = "docker"
image = "boxed:latest"
[engines.missing]
dialect = "llama-server"
driver = "process"
artefact = "{MODELS}/annie-nano-q4_k_m"
command = ["bin/llama-server"]
[models.annie]
live = "nano"
"""
RUN = "gate run --candidate nano --baseline nano --out out"
SHADOW = "shadow replay --candidate"
REFUSED: list[tuple[str, int, str]] = [
    # flags
    ("", 64, "see manners --help"),
    ("srve", 64, "invalid choice: 'srve'"),
    ("engine", 64, "VERB"),
    ("engine check localhost", 64, "url: 'localhost' must be http(s)://HOST[:PORT][/PATH]"),
    ("gate run --candidate nano", 64, "--baseline"),
    ("key add a --rpm -1", 64, "--rpm"),
    ("key add a --budget 1000000000000001", 64, "--budget"),
    ("key rotate a --overlap 91d", 64, "--overlap"),
    ("bench --length short", 64, "--length"),
    (f"{SHADOW} nano --days 0", 64, "a whole number"),
    # files and names
    ("serve --config none.toml", 78, "none.toml: No such file"),
    ("serve none.gguf", 78, "none.gguf does not exist: name a .gguf file, a model's folder, or the URL"),
    ("serve none.gguf --config x.toml", 64, "MODEL and --config exclude each other"),
    ("serve --port 9", 64, "--port is for a MODEL"),
    ("serve x --port 0", 64, "must be a whole number from 1"),
    ("gate seal nowhere --name a --format hf-bf16", 65, "nowhere: no such folder"),
    ("gate verify nowhere.json", 65, "keys: cannot be read"),
    (f"{RUN} --suite anni", 65, "annie"),
    (f"{RUN} --policy nano", 65, "no such policy"),
    (f"{RUN} --attach none", 69, "none: cannot be copied (No such file"),
    ("engine up none", 78, "there is no engine 'none'; configured are boxed, far, missing, nano, stranger"),
    ("engine up missing", 69, "bin/llama-server: No such file or directory; install the engine there"),
    ("engine up boxed", 64, "needs the model that it mounts"),
    ("engine up nano", 75, "another engine is being loaded, by op-1"),
    ("engine down nano", 64, "nano runs in no container"),
    ("engine logs nano", 66, "nano has no log in"),
    ("engine pin nano", 64, "is no engine with an image; there is: boxed"),
    (f"{SHADOW} stranger", 66, "record = true"),
    ("key add key-1", 1, "invalid_value"),
    ("doctor --config none.toml", 66, "none.toml: No such file"),
    # nobody answers
    ("chat Hi --url http://127.0.0.1:9", 69, "start one with `manners serve`"),
    ("engine check http://127.0.0.1:9/v1", 2, "http://127.0.0.1:9 does not stream: not_listening"),
    ("status", 69, "start one with `manners serve`"),
    ("status --admin here:8081", 69, "begins with http://"),
]
NO_CONFIG = (
    "gate seal",
    "srve",
    "serve none.gguf",
    "serve --port",
    "serve x",
    "chat",
    "engine check",
    "doctor",
)


@pytest.fixture(autouse=True)
def _place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A configuration with an engine of each driver, one of which is being loaded."""
    for name in [name for name in os.environ if name.startswith("MANNERS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("MANNERS_ADMIN_TOKEN", "token")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("app.cli.engine.REACH_SECONDS", 0.2)
    monkeypatch.setattr(UrlEngine, "start_timeout_s", 0.2)
    (tmp_path / "manners.toml").write_text(CONFIG)
    (tmp_path / "a-file").write_text("x")
    pins = {"images": {"boxed:latest": "sha256:" + "0" * 64}}
    (tmp_path / "engines.lock").write_text(json.dumps(pins))
    outer = structlog.get_config()
    yield
    structlog.configure(**outer)


def run(*words: str) -> int:
    try:
        return main(list(words))
    except SystemExit as left:
        return int(left.code or 0)


@pytest.mark.parametrize(("line", "code", "told"), REFUSED, ids=[line or "nothing" for line, _, _ in REFUSED])
def test_what_is_wrong_is_one_line_and_a_code(
    line: str, code: int, told: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    words = line.split()
    if line == "engine up nano":
        Lease(lease_path(tmp_path / "state")).take("op-1")
    if "--config" not in words and not any(map(line.startswith, NO_CONFIG)) and words:
        words += ["--config", "manners.toml"]
    assert run(*words) == code
    out, err = capsys.readouterr()
    assert told in err and err.count("\n") == 1, err
    assert out == "" or line.startswith("chat")
    assert err.startswith("manners")


@pytest.mark.parametrize(
    ("text", "words", "code", "told"),
    [
        ("LLAMA_IMAGE_TAG=x:1\n", "nano", 64, "--compose pins all that the file names"),
        ("LLAMA_IMAGE_TAG=\n", "", 66, "cpu.env: LLAMA_IMAGE_TAG= is not an image's NAME:TAG"),
        (None, "", 66, "cpu.env: No such file or directory"),
    ],
)
def test_an_env_file_that_cannot_be_pinned_gets_no_lock(
    text: str | None, words: str, code: int, told: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if text is not None:
        (tmp_path / "cpu.env").write_text(text)
    assert run("engine", "pin", *words.split(), "--compose", "cpu.env") == code
    err = capsys.readouterr().err
    assert told in err and err.count("\n") == 1
    assert not (tmp_path / "cpu.lock.env").exists()
