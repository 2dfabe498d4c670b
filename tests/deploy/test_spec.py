"""A spec that exists is well formed; anything else is one clear error."""

from pathlib import Path
from typing import Any, get_args

import pytest

from deploy.core.errors import SpecError, WeightsError
from deploy.drivers.embedded import EmbeddedEngine
from deploy.drivers.factory import make_engine
from deploy.drivers.process import ProcessEngine
from deploy.drivers.url import UrlEngine
from deploy.engine.spec import EngineSpec, spec_digest
from deploy.engine.weights import find_gguf, find_projector
from gates.contracts.dialect import Dialect

DIGEST = "sha256:" + "0a" * 32
EMBEDDED: dict[str, Any] = {
    "name": "e",
    "dialect": "llama-server",
    "driver": "embedded",
    "artefact": Path("m"),
}
DOCKER: dict[str, Any] = {
    "name": "d",
    "dialect": "vllm",
    "driver": "docker",
    "image": f"vllm/vllm-openai@{DIGEST}",
}
URL: dict[str, Any] = {
    "name": "u",
    "dialect": "openai",
    "driver": "url",
    "url": "http://127.0.0.1:9000",
}

PROCESS: dict[str, Any] = {
    "name": "p",
    "dialect": "vllm",
    "driver": "process",
    "artefact": Path("m"),
    "command": ("/v/bin/vllm", "serve"),
}


BAD_URLS = {
    "http://": "must be http",
    "ftp://host": "must be http",
    "unix:///run/engine.sock": "must be http",
    " http://host": "must be http",
    "http://host\n": "must be http",
    "http://host/\r\nx-key: 1": "must be http",
    "http://host\x00": "must be http",
    "http://host?a=b": "must be http",
    "http://host/v1#x": "must be http",
    "http://host\\@other": "must not hold a user",
    "http://host\\other": "must be http",
    "http://host:": "must be http",
    "http://host:x": "must be http",
    "http://host:0": "a port is from 1 to 65535",
    "http://host:65536": "a port is from 1 to 65535",
    "http://a..b": "neither a host's name nor an IP address",
    "http://.": "neither a host's name nor an IP address",
    "http://" + "a" * 64: "neither a host's name nor an IP address",
    "http://" + "a." * 130 + "b": "neither a host's name nor an IP address",
    "http://127.1": "neither a host's name nor an IP address",
    "http://2130706433": "neither a host's name nor an IP address",
    "http://[::1": "must be http",
    "http://[1::2::3]": "neither a host's name nor an IP address",
    "http://::1:80": "must be http",
    "http://host/a/../b": "must not hold",
    "http://host/%zz": "must be http",
    "http://höst": "xn--",
    "http://host/ä": "xn--",
    "http://１２７.0.0.1": "xn--",
    "http://user:hunter2@host": "must not hold a user or a password",
}


BAD: list[tuple[dict[str, Any], str, str]] = [
    (EMBEDDED | {"name": "Annie"}, "name", "must match"),
    (EMBEDDED | {"name": "a" * 65}, "name", "must match"),
    (EMBEDDED | {"name": "../a"}, "name", "must match"),
    (EMBEDDED | {"name": "a\n"}, "name", "must match"),
    (EMBEDDED | {"dialect": "ollama"}, "dialect", ", ".join(get_args(Dialect))),
    (EMBEDDED | {"dialect": "vllm"}, "dialect", "speaks llama-server"),
    (EMBEDDED | {"driver": "podman"}, "driver", "docker, process, embedded, url"),
    (EMBEDDED | {"artefact": None}, "artefact", "needs a .gguf"),
    (EMBEDDED | {"url": "http://x"}, "url", "means nothing"),
    (DOCKER | {"image": None}, "image", "needs an image"),
    (DOCKER | {"image": "vllm/vllm-openai"}, "image", "not pinned"),
    (DOCKER | {"image": "vllm/vllm-openai:v0.24.0"}, "image", "not pinned"),
    (DOCKER | {"image": "vllm/vllm-openai@sha256:abc"}, "image", "not pinned"),
    (DOCKER | {"image": f"-v/:/host@{DIGEST}"}, "image", "not pinned"),
    (DOCKER | {"gpu": "some"}, "gpu", "all, none"),
    (EMBEDDED | {"gpu": "all"}, "gpu", "means nothing"),
    (URL | {"url": None}, "url", "needs the engine's address"),
    *[(URL | {"url": url}, "url", why) for url, why in BAD_URLS.items()],
    (URL | {"args": ("--x",)}, "args", "means nothing"),
    (URL | {"command": ("x",)}, "command", "means nothing"),
    (DOCKER | {"env": (("A", "b"),)}, "env", "means nothing"),
    (PROCESS | {"command": None}, "command", "needs the words"),
    (PROCESS | {"command": ("a\0b",)}, "command", "zero byte"),
    (PROCESS | {"artefact": None}, "artefact", "needs the model"),
    (PROCESS | {"image": "x"}, "image", "means nothing"),
    (PROCESS | {"dialect": "openai"}, "args", "{port}"),
    (PROCESS | {"env": (("MANNERS_API_KEYS", "x"),)}, "env", "is no variable for an engine"),
    (PROCESS | {"env": (("A=B", "x"),)}, "env", "is no variable for an engine"),
    (PROCESS | {"env": (("A", "\0"),)}, "env", "zero byte"),
]


@pytest.mark.parametrize(("fields", "field", "why"), BAD)
def test_a_bad_spec_names_the_engine_the_field_and_the_reason(
    fields: dict[str, Any], field: str, why: str
) -> None:
    with pytest.raises(SpecError, match=why) as caught:
        EngineSpec(**fields)
    assert caught.value.field == field
    assert repr(fields["name"]) in str(caught.value)


def test_a_projector_beside_it_is_no_second_model(tmp_path: Path) -> None:
    for name in ("artefact.json", "m.gguf"):
        (tmp_path / name).touch()
    assert find_projector(tmp_path) is None and find_projector(tmp_path / "m.gguf") is None
    (tmp_path / "mmproj-f16.gguf").touch()
    assert find_gguf(tmp_path) == tmp_path / "m.gguf"
    assert find_projector(tmp_path) == find_projector(tmp_path / "m.gguf") == tmp_path / "mmproj-f16.gguf"
    (tmp_path / "n.gguf").touch()
    assert find_projector(tmp_path / "m.gguf") is None
    (tmp_path / "mmproj-f32.gguf").touch()
    with pytest.raises(WeightsError, match="at most one mmproj"):
        find_projector(tmp_path)


@pytest.mark.parametrize(
    ("path", "names", "why"),
    [
        (".", ["m.gguf"], "no artefact.json"),
        (".", ["artefact.json"], "exactly one .gguf, and holds none"),
        (".", ["artefact.json", "a.gguf", "b.gguf"], "holds a.gguf, b.gguf"),
        ("none", [], "does not exist"),
        ("x.bin", ["x.bin"], "not a .gguf"),
    ],
)
def test_what_is_no_model_is_refused(tmp_path: Path, path: str, names: list[str], why: str) -> None:
    for name in names:
        (tmp_path / name).touch()
    with pytest.raises(WeightsError, match=why):
        find_gguf(tmp_path / path)


def test_each_driver_makes_its_engine(tmp_path: Path) -> None:
    embedded = make_engine(EngineSpec(**EMBEDDED), state_dir=tmp_path)
    assert isinstance(embedded, EmbeddedEngine)
    assert isinstance(make_engine(EngineSpec(**URL), state_dir=tmp_path), UrlEngine)
    assert isinstance(make_engine(EngineSpec(**PROCESS), state_dir=tmp_path), ProcessEngine)


CHANGES: list[tuple[dict[str, Any], dict[str, Any]]] = [
    (DOCKER, {"name": "other"}),
    (DOCKER, {"dialect": "llama-server"}),
    (DOCKER, {"image": "vllm/vllm-openai@sha256:" + "0b" * 32}),
    (DOCKER, {"args": ("--max-model-len", "8192")}),
    (DOCKER, {"kind": "embeddings"}),
    (DOCKER, {"gpu": "none"}),
    (EMBEDDED, {"artefact": Path("n")}),
    (URL, {"url": "http://127.0.0.1:9001"}),
    (PROCESS, {"command": ("/w/bin/vllm", "serve")}),
    (PROCESS, {"env": (("VLLM_USE_V1", "1"),)}),
]


@pytest.mark.parametrize(("fields", "change"), CHANGES)
def test_any_change_of_a_spec_changes_its_digest(fields: dict[str, Any], change: dict[str, Any]) -> None:
    assert spec_digest(EngineSpec(**fields)) != spec_digest(EngineSpec(**fields | change))
