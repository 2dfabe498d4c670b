"""Policies on disk: TOML files; `gates/policies/annie.toml` uses and explains every key."""

from pathlib import Path
from typing import Final

from gates.contracts.case import Suite
from gates.contracts.errors import PolicyError
from gates.decode.decoder import DecodeError, read
from gates.decode.toml_file import TomlFiles
from gates.policy.derived import DERIVED, derive
from gates.policy.policy import Policy

FILES: Final = TomlFiles("policy", Path(__file__).parents[1] / "policies", PolicyError)
shipped: Final = FILES.shipped


def load_policy(name_or_path: str | Path) -> Policy:
    """A shipped policy by name, or any policy by the path of its .toml file. Raises PolicyError."""
    path = FILES.path(name_or_path)
    return parse(FILES.text(path), str(path))


def policy_for(name_or_path: str | Path, suite: Suite) -> Policy:
    """As `load_policy`; "derived" is made for the suite. Raises PolicyError."""
    return derive(suite) if name_or_path == DERIVED else load_policy(name_or_path)


def parse(text: str, where: str = "policy") -> Policy:
    """Read a policy's TOML text. Raises PolicyError, one line that names the key."""
    table = FILES.table(text, where)
    try:
        return read(Policy, table)
    except DecodeError as refused:
        raise PolicyError(f"{where}: {refused}") from None
