"""Every action has what an operation needs of it: a handler, a bound, and a line in docs/architecture.md."""

import re
from pathlib import Path

from app.promotion.state_machine import Action
from app.promotion.steps import HANDLERS, TIMEOUTS

PAGE = Path(__file__).parents[3] / "docs" / "architecture.md"


def test_every_action_has_a_handler() -> None:
    assert HANDLERS.keys() == {*Action}


def test_every_action_is_bounded() -> None:
    """Three have a bound of their own."""
    assert {*Action} - TIMEOUTS.keys() == {Action.DRAIN, Action.SHARE, Action.WATCH}


def test_the_page_says_what_every_action_brings_about() -> None:
    table = PAGE.read_text("utf-8").partition("| action |")[2].partition("\n\n")[0]
    named = re.findall(r"\w+", " ".join(re.findall(r"^\|([^|]+)\|", table, re.MULTILINE)))
    assert {*named} == {str(action) for action in Action}
