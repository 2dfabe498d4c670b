"""llama-server's flags for the embedded engine, by the table in llama_flags.toml.

Standard library only: the embedded engine's child imports it.
"""

import json
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Final

from deploy.core.errors import FlagError

Value = int | float | str | bool | dict[str, str]
Settings = dict[str, Value]


@dataclass(frozen=True, slots=True, kw_only=True)
class Flag:
    """A row of the table, which explains its keys."""

    names: Sequence[str]
    field: str
    value: str | None = None
    sets: str | bool = True
    user_bit: str | None = None


def _template_kwargs(word: str) -> dict[str, str]:
    kwargs = json.loads(word)
    if not isinstance(kwargs, dict):
        raise ValueError
    return {key: json.dumps(value) for key, value in kwargs.items()}


_TABLE: Final = tomllib.loads(Path(__file__).with_name("llama_flags.toml").read_text("utf-8"))
FLAGS: Final = tuple(Flag(**row) for row in _TABLE["flags"])
DEFAULTS: Final[Mapping[str, int | str | bool]] = _TABLE["defaults"]
_CHOICES: Final[Mapping[str, Mapping[str, int | str]]] = _TABLE["choices"]
_TAKEN: Final[Mapping[str, str]] = _TABLE["taken"]
USER_BITS: Final = "user_sampling_bits"
_BY_NAME: Final = {name: flag for flag in FLAGS for name in flag.names}
_TYPES: Final[Mapping[str, tuple[Callable[[str], Value], str]]] = {
    "int": (int, "a whole number"),
    "float": (float, "a number"),
    "str": (str, "a text"),
    "json": (_template_kwargs, "a JSON object"),
}


def default_threads(cores: int) -> int:
    """Half the cores, one to four.

    llama.cpp's threads spin while they wait for each other, so one that shares its core with another process delays all: on two
    shared cores with four streams, a second thread took the longest TTFT from 28 to 276 ms, and the start from 0.2 to 3 s.
    """
    return max(1, min(4, cores // 2))


def parse_flags(engine: str, args: tuple[str, ...], *, cores: int) -> Settings:
    """The settings of these flags, over the defaults for a machine with `cores` cores. Raises FlagError."""
    settings: Settings = {**DEFAULTS, "cpuparams.n_threads": default_threads(cores)}
    bits: list[str] = []
    seen: set[str] = set()
    words = list(args)
    while words:
        flag, word = _take(engine, words)
        if flag.field in seen:
            raise FlagError(engine, f"{flag.names[0]} is given twice, or with its opposite")
        seen.add(flag.field)
        settings[flag.field] = flag.sets if word is None else _read(engine, flag, word)
        bits += [flag.user_bit] if flag.user_bit else []
    if "n_ctx" in seen and "kv_unified" not in seen:
        settings["kv_unified"] = True
    if bits:
        settings[USER_BITS] = " ".join(bits)
    return settings


def _take(engine: str, words: list[str]) -> tuple[Flag, str | None]:
    """The next flag and its value; None for a switch."""
    name, equals, value = words.pop(0).partition("=")
    flag = _BY_NAME.get(name)
    if flag is None:
        raise FlagError(engine, _unknown(name))
    if flag.value is None:
        if equals:
            raise FlagError(engine, f"{name} takes no value")
        return flag, None
    if equals:
        return flag, value
    if not words:
        raise FlagError(engine, f"{name} needs a value")
    return flag, words.pop(0)


def _unknown(name: str) -> str:
    if name in _TAKEN:
        return f"{name} is set by {_TAKEN[name]} and cannot be given"
    near = get_close_matches(name, _BY_NAME, n=1, cutoff=0.5)
    hint = f"; did you mean {near[0]}?" if near else ""
    return f"{name!r} is not a flag that the embedded engine knows{hint}"


def _read(engine: str, flag: Flag, word: str) -> Value:
    assert flag.value is not None
    choices = _CHOICES.get(flag.value, {})
    read, need = _TYPES.get(flag.value, (choices.__getitem__, f"one of {', '.join(choices)}"))
    try:
        return read(word)
    except (ValueError, KeyError):
        raise FlagError(engine, f"{flag.names[0]} must be {need}, not {word!r}") from None
