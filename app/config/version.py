"""The version of this program, as its package states it."""

from importlib.metadata import PackageNotFoundError, version
from typing import Final


def _version() -> str:
    try:
        return version("manners")
    except PackageNotFoundError:  # run from a checkout that was never installed
        return "unknown"


VERSION: Final = _version()
