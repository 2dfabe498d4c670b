"""The configuration of `manners serve MODEL…`: a GGUF file, a folder, or the address of a running engine, each served by its name."""

import os
import re
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import httpx2

from app.config.config import Config, ConfigError, parse
from deploy.engine.spec import url_fault
from deploy.engine.weights import is_projector

STATE: Final = "~/.local/state/manners/serve"  # with a folder for each first model: several gateways can run
ASK_SECONDS: Final = 10.0
OWNERS: Final = {"vllm": "vllm", "llamacpp": "llama-server", "sglang": "sglang"}  # `owned_by` and the dialect


def config_for(models: Sequence[str], name: str | None, port: int, context: int | None) -> Config:
    """A configuration that serves these models on `port`, and operators on the next one.

    `name` is the public name of a single model; `context` its context in tokens. Raises ConfigError.
    """
    if name and len(models) > 1:
        raise ConfigError(f"--name is for one model, and {len(models)} are given: leave it out")
    engines: dict[str, Mapping[str, Any]] = {}
    for model in models:
        found, table = _engine(model, context)
        public = name or found
        if public in engines:
            raise ConfigError(f"{model}: two models have the name {public!r}: rename a file")
        engines[public] = table
    gateway = {
        "listen": f"127.0.0.1:{port}",
        "admin": f"127.0.0.1:{port + 1 if port else 0}",
        "state": f"{STATE}/{next(iter(engines))}",
    }
    tables = {"gateway": gateway, "engines": engines, "models": {name: {"live": name} for name in engines}}
    return parse(tables, Path.cwd(), os.environ)


def config_for_running(urls: Mapping[str, str]) -> Config:
    """A configuration of running engines by name, the first of which is live. Raises ConfigError."""
    if len(set(urls.values())) < len(urls):
        raise ConfigError(
            f"{', '.join(urls)} have the same URL, {next(iter(urls.values()))}: name different engines"
        )
    engines = {name: _running(url.rstrip("/").removesuffix("/v1"))[1] for name, url in urls.items()}
    return parse({"engines": engines, "models": {"model": {"live": next(iter(engines))}}}, Path.cwd())


def _engine(model: str, context: int | None) -> tuple[str, dict[str, Any]]:
    """A name, and the engine's table."""
    if model.startswith(("http://", "https://")):
        if context is not None:
            raise ConfigError(f"--ctx: {model} already runs, and its context is fixed: leave --ctx out")
        return _running(model.rstrip("/").removesuffix("/v1"))
    path, flag = Path(model).expanduser().absolute(), "--ctx-size"
    table: dict[str, Any] = {"dialect": "llama-server", "driver": "embedded"}
    if path.is_dir() and (models := sorted(f for f in path.glob("*.gguf") if not is_projector(f.name))):
        if len(models) > 1:
            raise ConfigError(f"{path}: name one of its files: {', '.join(file.name for file in models)}")
        name, artefact = path.name, models[0]
    elif path.suffix == ".gguf" and path.is_file():
        name, artefact = path.stem, path
    elif (path / "config.json").is_file():
        name, artefact, flag = path.name, path, "--max-model-len"
        if (program := shutil.which("vllm")) is None:
            raise ConfigError(f"{path}: no `vllm` is on PATH: install it, or start it and name its URL")
        table = {"dialect": "vllm", "driver": "process", "command": [program, "serve"]}
    else:
        what = "holds no model" if path.is_dir() else "is no model" if path.exists() else "does not exist"
        raise ConfigError(f"{path} {what}: name a .gguf file, a model's folder, or the URL of an engine")
    return _named(name), {**table, "artefact": str(artefact), "args": [flag, str(context)] if context else []}


def _running(url: str) -> tuple[str, dict[str, Any]]:
    """Of a running engine: its list of models tells the name, and the program."""
    if fault := url_fault(url):
        raise ConfigError(f"{url}: {fault}")
    try:
        reply = httpx2.get(f"{url}/v1/models", timeout=ASK_SECONDS, trust_env=False)
        first = reply.raise_for_status().json()["data"][0]
        name, owner = str(first["id"]), str(first.get("owned_by"))
    except (httpx2.HTTPError, ValueError, LookupError, TypeError, AttributeError) as error:
        why = next(iter(str(error).splitlines()), type(error).__name__)
        raise ConfigError(f"{url}/v1/models: no list of models: {why}; is an engine running there?") from None
    return _named(Path(name).stem if name.endswith(".gguf") else name.rpartition("/")[2]), {
        "dialect": OWNERS.get(owner, "openai"),
        "driver": "url",
        "url": url,
    }


def _named(text: str) -> str:
    """A public name as configurations take it, of at most 64 characters."""
    return re.sub(r"[^a-z0-9._-]+", "-", text.lower()).strip("._-")[:64] or "model"
