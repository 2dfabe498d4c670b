"""The version of this program, as its package states it."""

from importlib.metadata import version
from typing import Final

VERSION: Final = version("manners")
