"""What a model must show before it may serve: policies on disk, read strictly into frozen values.

A policy is a TOML file (`gates/policies/annie.toml` documents every key by using it). Its digest is
over everything that decides, with every default filled in; comments, the order of keys and the
description do not count. Whether a suite can feed a policy is `gates.policy.check.check_policy`.

It judges nothing: that is `gates.judge.decide`.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

from gates.contracts.errors import PolicyError as PolicyError
from gates.policy.decoder import Refused, nearest, read
from gates.policy.rules import Compare as Compare
from gates.policy.rules import Floor as Floor
from gates.policy.rules import Gate as Gate
from gates.policy.rules import Latency as Latency
from gates.policy.rules import Rate as Rate
from gates.policy.rules import Ratio as Ratio
from gates.policy.rules import Zero as Zero
from gates.policy.values import METRICS as METRICS
from gates.policy.values import SAME as SAME
from gates.policy.values import UNITS as UNITS
from gates.policy.values import KnownBad as KnownBad
from gates.policy.values import Policy as Policy
from gates.policy.values import Repeat as Repeat
from gates.policy.values import Run as Run
from gates.policy.values import Same as Same

POLICIES: Final = Path(__file__).parents[1] / "policies"


def shipped() -> tuple[str, ...]:
    """The names of the policies that come with this program."""
    return tuple(sorted(path.stem for path in POLICIES.glob("*.toml")))


def load_policy(name_or_path: str | Path) -> Policy:
    """A shipped policy by its name, or any by the path of its .toml file. Raises PolicyError."""
    path = Path(name_or_path)
    if path.suffix != ".toml":
        path = POLICIES / f"{name_or_path}.toml"
        if str(name_or_path) not in shipped():
            hint = nearest(str(name_or_path), shipped())
            raise PolicyError(f"{name_or_path}: no such policy{hint}; or give a .toml file")
    try:
        return parse(path.read_text(encoding="utf-8"), str(path))
    except OSError as error:
        raise PolicyError(f"{path}: cannot be read ({error.strerror})") from None
    except UnicodeDecodeError:
        raise PolicyError(f"{path}: is not UTF-8 text") from None


def parse(text: str, where: str = "policy") -> Policy:
    """The policy of a TOML text; a fault is a PolicyError of one line that names its key."""
    try:
        table = tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        raise PolicyError(f"{where}: not TOML ({error})") from None
    try:
        return read(Policy, table)
    except Refused as refused:
        raise PolicyError(f"{where}: {refused}") from None


def with_system(messages: Iterable[Mapping[str, Any]], text: str) -> tuple[Mapping[str, Any], ...]:
    """Messages with a policy's text behind their system prompt; a prompt of its own if there was none."""
    first, *rest = messages = tuple(messages)
    if not text:
        return messages
    if first["role"] != "system":
        return ({"role": "system", "content": text}, *messages)
    return ({**first, "content": f"{first['content']}\n\n{text}"}, *rest)
