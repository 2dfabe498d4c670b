"""Recipes: how a model is quantized, as a strict TOML file read into frozen values. Pure but for reading the file.

A recipe has a section for each step, and a step without a section is not taken:

    [layers]      which linear layers become NVFP4
    [weights]     how their block scales are found
    [calibrate]   how much data sets the scales of the inputs
    [awq] [auto] [svdquant]      searches before the quantization
    [rounding]                   AutoRound's, where that does the work
    [train] [lora]               training with the quantization in place

`quantizer/recipes/*.toml` are the shipped ones; each says why it is there. `override` changes single values, as
`--set train.lr=1e-6` does. A recipe's `plain` form, with every default filled in, goes into the artefact.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from gates.policy.decoder import Refused, nearest, read
from quantizer.core.errors import RecipeError
from quantizer.recipes.values import Recipe

RECIPES: Final = Path(__file__).parent
MAX_BYTES: Final = 2**20


def shipped() -> tuple[str, ...]:
    """The names of the recipes that come with this program."""
    return tuple(sorted(path.stem for path in RECIPES.glob("*.toml")))


def load_recipe(name_or_path: str | Path, changes: Iterable[str] = ()) -> Recipe:
    """A shipped recipe by its name, or any by the path of its .toml file.

    changes: assignments such as "train.lr=1e-6" or "layers.exclude=['*o_proj']"; values are TOML. Raises RecipeError
    with one line: no such recipe, not TOML, an unknown key and the nearest right one, a value out of its range.
    """
    path = Path(name_or_path)
    if path.suffix != ".toml":
        path = RECIPES / f"{name_or_path}.toml"
        if str(name_or_path) not in shipped():
            hint = nearest(str(name_or_path), shipped())
            raise RecipeError(f"{name_or_path}: no such recipe{hint}; or give a .toml file")
    try:
        with path.open("rb") as file:
            text = file.read(MAX_BYTES).decode()
    except OSError as error:
        raise RecipeError(f"{path}: cannot be read ({error.strerror})") from None
    except UnicodeDecodeError:
        raise RecipeError(f"{path}: is not UTF-8 text") from None
    return parse(text, path.stem, str(path), changes)


def parse(text: str, name: str, where: str = "recipe", changes: Iterable[str] = ()) -> Recipe:
    """The recipe of a TOML text, with changes applied. Raises RecipeError."""
    try:
        table = tomllib.loads(text)
        for change in changes:
            _change(table, change)
        return read(Recipe, {"name": name, **table})
    except tomllib.TOMLDecodeError as error:
        raise RecipeError(f"{where}: not TOML ({error})") from None
    except Refused as refused:
        raise RecipeError(f"{where}: {refused}") from None


def plain(recipe: Recipe) -> dict[str, Any]:
    """The recipe as JSON values, every default filled in, steps that are not taken left out."""
    return {key: value for key, value in _listed(asdict(recipe)).items() if value is not None}


def _change(table: dict[str, Any], change: str) -> None:
    """Set one value of a table. A section that is not there begins to exist."""
    key, sign, value = (part.strip() for part in change.partition("="))
    if not sign or not key:
        raise Refused("", f"{change!r} is not an assignment, as train.lr=1e-6 is")
    *sections, last = key.split(".")
    for section in sections:
        table = table.setdefault(section, {})
        if not isinstance(table, dict):
            raise Refused(key, f"{section} is not a table")
    table[last] = _value(value)


def _value(text: str) -> Any:
    """A TOML value; a bare word counts as text, so that a shell needs no quotes within quotes."""
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except (tomllib.TOMLDecodeError, KeyError):
        return text


def _listed(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _listed(inner) for key, inner in value.items()}
    return [_listed(inner) for inner in value] if isinstance(value, tuple) else value
