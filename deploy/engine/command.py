"""The command line of an engine's server: the flags that a driver sets, and the `args` of the spec. Pure."""

from collections.abc import Mapping
from typing import Final

from deploy.core.errors import FlagError
from deploy.engine.spec import EngineSpec

_OURS: Final[Mapping[str, tuple[str, ...]]] = {
    "vllm": ("--host", "--port", "--served-model-name", "--api-key", "--model", "--uds"),
    "sglang": ("--host", "--port", "--served-model-name", "--api-key", "--model-path", "--model"),
    "llama-server": ("--host", "--port", "--alias", "-a", "--api-key", "--api-key-file", "--model", "-m"),
}
"""Flags that the driver sets itself: address, served model name, and keys."""

SILENT: Final = {
    "HF_HUB_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
    "VLLM_NO_USAGE_STATS": "1",
    "DO_NOT_TRACK": "1",
}
"""Environment variables that keep an engine off the network."""


def server_args(spec: EngineSpec, model: str, host: str, port: int, *, serve: bool = True) -> tuple[str, ...]:
    """What stands behind the name of the server's program. `serve`: it is `vllm serve`, which takes the model first.

    A server of the dialect "openai" is told by placeholders in `args`.

    Raises:
        FlagError: one of the `args` is set by the driver.
    """
    for word in spec.args:
        if word.partition("=")[0] in _OURS.get(spec.dialect, ()):
            raise FlagError(spec.name, f"{word} is set by the driver and cannot be given")
    where = ("--host", host, "--port", str(port))
    if spec.dialect == "vllm":
        given = (model,) if serve else ("--model", model)
        return (*given, "--served-model-name", spec.name, *where, *spec.args)
    if spec.dialect == "sglang":
        return ("--model-path", model, "--served-model-name", spec.name, *where, *spec.args)
    if spec.dialect == "llama-server":
        # Errors only: llama.cpp's warnings quote the request that they complain about.
        named = ("--model", model, "--alias", spec.name)
        return (*named, *where, "--metrics", "--log-verbosity", "1", *spec.args)
    return fill(spec.args, dict(zip(PLACEHOLDERS, (model, spec.name, host, str(port)), strict=True)))


PLACEHOLDERS: Final = ("{model}", "{name}", "{host}", "{port}")


def has_placeholder(word: str) -> bool:
    """Whether a word of `args` changes with every start."""
    return any(name in word for name in PLACEHOLDERS)


def fill(words: tuple[str, ...], values: Mapping[str, str]) -> tuple[str, ...]:
    """The words with every placeholder replaced."""
    filled = []
    for word in words:
        for name, value in values.items():
            word = word.replace(name, value)
        filled.append(word)
    return tuple(filled)
