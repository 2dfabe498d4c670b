"""docs/spark.md and docs/quantize.md say what the plan says, and name what is there."""

from __future__ import annotations

import re

import pytest

from quantizer.recipes.recipe import shipped_recipes
from tests.quantizer.plan.handbook import DOCS, PARTS, written

TEXTS = {name: (DOCS / name).read_text("utf-8") for name in PARTS}


@pytest.mark.parametrize("name", PARTS)
def test_the_figures_are_current(name: str) -> None:
    """If they are not: python -m tests.quantizer.plan.handbook."""
    assert written(name, TEXTS[name]) == TEXTS[name]


@pytest.mark.parametrize("name", PARTS)
def test_a_document_that_lost_a_mark_is_not_written_over(name: str) -> None:
    with pytest.raises(ValueError, match="has no part"):
        written(name, TEXTS[name].replace("<!-- generated", ""))


def test_the_guide_helps_to_choose_among_all_recipes() -> None:
    named = set(
        re.findall(
            r"`([a-z0-9_]+)`", TEXTS["quantize.md"].partition("Which recipe\n")[2].partition("\n## ")[0]
        )
    )
    assert set(shipped_recipes()) <= named


@pytest.mark.parametrize("name", PARTS)
def test_its_commands_are_understood(name: str) -> None:
    """Every `manners quantize` or `manners data` line parses: no flag is made up."""
    from app.__main__ import _parser

    text = TEXTS[name].replace("\\\n", " ")
    commands = re.findall(r"^(?:\.venv/bin/)?manners ((?:quantize|data) [^#\n]+)", text, re.MULTILINE)
    assert commands
    for command in commands:
        words = [
            re.sub(r'^"?\$\(id -u\)"?$', "0", word)
            for word in re.split(r"\s+(?![^\"]*-u\)\")", command.strip())
        ]
        _parser().parse_args(words)
