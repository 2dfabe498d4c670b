"""`manners serve MODEL…`: what each kind of model becomes in the configuration, and what is refused."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from app.config.config import ConfigError
from app.config.served import config_for

pytestmark = pytest.mark.usefixtures("home")


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty home folder, where the state lies; the current folder has models."""
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.chdir(tmp_path)
    files = "One B.Q4_1.gguf, two/w.gguf, seen/w.gguf, seen/mmproj-w.gguf, many/a.gguf, many/b.gguf"
    for name in files.split(", "):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    (tmp_path / "nvfp4").mkdir()
    (tmp_path / "nvfp4/config.json").write_text("{}")
    (tmp_path / "empty").mkdir()
    return tmp_path


class _Models(BaseHTTPRequestHandler):
    body = b""

    def do_GET(self) -> None:
        self.send_response(200 if self.path == "/v1/models" else 404)
        self.end_headers()
        self.wfile.write(self.body)

    def log_message(self, *args: object) -> None:
        """Nothing is logged."""


@contextmanager
def engine(body: str) -> Iterator[str]:
    """The address of one that answers its list of models with this."""
    with ThreadingHTTPServer(("127.0.0.1", 0), type("_", (_Models,), {"body": body.encode()})) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def served(
    *models: str, name: str | None = None, context: int | None = None
) -> dict[str, tuple[str, str, str | None]]:
    """By public name: dialect, driver, artefact below the current folder."""
    config = config_for(models, name, 9000, context)
    assert [model.live for model in config.models.values()] == [(public,) for public in config.engines]
    here = Path.cwd()
    return {
        public: (one.dialect, one.driver, str(one.artefact.relative_to(here)) if one.artefact else None)
        for public, one in config.engines.items()
    }


def test_files_and_folders_are_served_by_their_names() -> None:
    llama = ("llama-server", "embedded")
    assert served("One B.Q4_1.gguf", "two", "seen") == {
        "one-b.q4_1": (*llama, "One B.Q4_1.gguf"),
        "two": (*llama, "two/w.gguf"),
        "seen": (*llama, "seen/w.gguf"),  # its projector is found beside it
    }
    assert served("two", name="annie", context=512) == {"annie": (*llama, "two/w.gguf")}
    assert config_for(["two"], None, 9000, 512).engines["two"].args == ("--ctx-size", "512")


def test_operators_have_the_next_port_and_each_first_model_a_state_folder(home: Path) -> None:
    config = config_for(["two"], "annie", 9000, None)
    assert (config.listen.port, config.admin.port) == (9000, 9001)
    assert config.state_dir == home / "home/.local/state/manners/serve/annie"


def test_safetensors_are_served_by_the_vllm_on_the_path(home: Path) -> None:
    (home / "bin").mkdir()
    (home / "bin/vllm").touch(mode=0o755)
    assert served("nvfp4", context=512) == {"nvfp4": ("vllm", "process", "nvfp4")}
    spec = config_for(["nvfp4"], None, 9000, 512).engines["nvfp4"]
    assert spec.command == (str(home / "bin/vllm"), "serve") and spec.args == ("--max-model-len", "512")


@pytest.mark.parametrize(
    ("owner", "dialect"),
    [
        ("vllm", "vllm"),
        ("llamacpp", "llama-server"),
        ("sglang", "sglang"),
        ("somebody", "openai"),
        (None, "openai"),
    ],
)
def test_a_running_engine_tells_its_name_and_its_dialect(owner: str | None, dialect: str) -> None:
    with engine(json.dumps({"data": [{"id": "org/Model-1B", "owned_by": owner}]})) as url:
        config = config_for([f"{url}/v1/"], None, 9000, None)
    spec = config.engines["model-1b"]
    assert (spec.dialect, spec.driver, spec.url) == (dialect, "url", url)


@pytest.mark.parametrize(
    ("models", "more", "why"),
    [
        (["none.gguf"], {}, "none.gguf does not exist: name a .gguf file"),
        (["many"], {}, "name one of its files: a.gguf, b.gguf"),
        (["nvfp4"], {}, "no `vllm` is on PATH"),
        (["two", "two"], {}, "two models have the name 'two'"),
        (["two", "seen"], {"name": "x"}, "--name is for one model, and 2 are given"),
        (["two"], {"name": "An Nie"}, "name: must match"),
        (["http://127.0.0.1:9"], {}, "is an engine running there?"),
        (["http://127.0.0.1:9"], {"context": 9}, "--ctx"),
    ],
)
def test_what_cannot_be_served_is_refused_in_one_sentence(
    models: list[str], more: dict[str, Any], why: str
) -> None:
    with pytest.raises(ConfigError) as refused:
        config_for(models, more.get("name"), 9000, more.get("context"))
    assert why in str(refused.value) and "\n" not in str(refused.value)


@pytest.mark.parametrize("body", ["", "[]", '{"data": []}', '{"data": [1]}', "{"])
def test_an_address_that_lists_no_model_is_refused(body: str) -> None:
    with engine(body) as url, pytest.raises(ConfigError, match="no list of models"):
        config_for([url], None, 9000, None)
