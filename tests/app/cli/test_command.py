"""The `manners` command says no in one line, with sysexits' code, and never with a traceback."""

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import structlog

from app.__main__ import main
from app.registry.registry import Registry
from tests.app.api.nanos import MODELS
from tests.app.cli.test_serve import write


@pytest.fixture(autouse=True)
def bare(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No secrets from outside; the log's settings are put back."""
    for name in [name for name in os.environ if name.startswith("MANNERS_")]:
        monkeypatch.delenv(name)
    outer = structlog.get_config()
    yield
    structlog.configure(**outer)


@pytest.fixture
def taken() -> Iterator[str]:
    """An address that somebody else listens on."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        yield f"127.0.0.1:{listener.getsockname()[1]}"


WRONG: dict[str, tuple[dict[str, str], str]] = {
    "a public port in use": ({"listen": "TAKEN"}, "gateway.listen: cannot listen on TAKEN: Address already in use; set another"),
    "an address of another host": ({"listen": "203.0.113.7:0", "api_keys_file": "keys"}, "gateway.listen: cannot listen on 203.0.113.7:0: "),
    "a name of no host": ({"admin": "no-such-host.invalid:0"}, "gateway.admin: cannot listen on no-such-host.invalid:0: "),
    "an open address without keys": ({"listen": "0.0.0.0:0"}, "gateway.listen: without an API key only a loopback address is served"),
    "an open address with an empty file of keys": ({"listen": "[::]:0", "api_keys_file": "file"}, "gateway.listen: without an API key"),
    "a state folder that is a file": ({"state": "file"}, "gateway.state: "),
    "a state folder of another gateway": ({"state": "used"}, "used/registry.db: another gateway uses this state folder"),
    "a state folder that others write to": ({"state": "shared"}, "shared: the state folder cannot be used: others may write to it (mode 777); run: chmod 700 "),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_what_cannot_be_served_is_one_line_and_code_78(
    name: str, tmp_path: Path, taken: str, capfd: pytest.CaptureFixture[str]
) -> None:
    """The key that is to be changed, and why."""
    gateway, expected = WRONG[name]
    for file, text in (("file", ""), ("keys", "key-1\n")):
        (tmp_path / file).write_text(text)
        (tmp_path / file).chmod(0o600)
    (tmp_path / "shared").mkdir()
    (tmp_path / "shared").chmod(0o777)
    (tmp_path / "used").mkdir(mode=0o700)
    settings = {key: value.replace("TAKEN", taken) for key, value in gateway.items()}
    path = write(tmp_path, "http://127.0.0.1:9", **settings)
    with Registry(tmp_path / "used" / "registry.db"):
        assert main(["serve", "--config", str(path)]) == 78
    out, err = capfd.readouterr()
    assert out == ""
    assert err.startswith("manners serve: ") and err.count("\n") == 1
    assert expected.replace("TAKEN", taken) in err


def test_the_port_of_a_model_is_named_by_its_flag(
    taken: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    port = taken.rpartition(":")[2]
    assert main(["serve", str(MODELS / "annie-nano-q4_k_m/annie-nano-q4_k_m.gguf"), "--port", port]) == 78
    assert f"--port: cannot listen on {taken}" in capfd.readouterr().err


def test_a_command_imports_what_it_needs_alone() -> None:
    """Every `manners` reads the flags of all commands. What a command works with is imported when it runs."""
    heavy = ("aiohttp", "app.registry", "fastapi", "httpx2", "pydantic", "rich", "sqlite3", "structlog")
    script = f"import sys; from app.__main__ import _parser; _parser(); print(sorted(sys.modules.keys() & set({heavy})))"
    told = subprocess.run([sys.executable, "-c", script], capture_output=True, check=True, text=True)
    assert told.stdout.strip() == "[]"


def test_a_command_whose_reader_has_gone_ends_as_sigpipe_ends_it_and_says_nothing() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(
        [sys.executable, "-m", "app", "doctor", "--json"],
        stdout=writer,
        stderr=subprocess.PIPE,
        text=True,
        timeout=120,
    )
    os.close(writer)
    assert (done.returncode, done.stderr) == (141, "")
