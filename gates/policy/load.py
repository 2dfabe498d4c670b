"""Policies on disk.

A policy is a TOML file; `gates/policies/annie.toml` uses and explains every key. Its digest covers
everything that decides, with all defaults filled in, and ignores comments, key order and the
description. `gates.policy.check.check_policy` checks whether a suite has what the policy needs;
`gates.judge.decide` applies the policy.
"""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Final

from gates.contracts.errors import PolicyError
from gates.policy.decoder import DecodeError, nearest, read
from gates.policy.policy import Policy

POLICIES: Final = Path(__file__).parents[1] / "policies"


def shipped() -> tuple[str, ...]:
    """The names of the policies that come with this program."""
    return tuple(sorted(path.stem for path in POLICIES.glob("*.toml")))


def load_policy(name_or_path: str | Path) -> Policy:
    """A shipped policy by name, or any policy by the path of its .toml file. Raises PolicyError."""
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
    """Read a policy's TOML text. Raises PolicyError, one line that names the key."""
    try:
        table = tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        raise PolicyError(f"{where}: not TOML ({error})") from None
    try:
        return read(Policy, table)
    except DecodeError as refused:
        raise PolicyError(f"{where}: {refused}") from None
