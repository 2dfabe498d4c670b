"""docs/gates.md shows the detectors' current figures."""

from tests.gates.handbook import DOCUMENT, written


def test_its_figures_are_current() -> None:
    text = DOCUMENT.read_text("utf-8")
    assert written(text) == text
