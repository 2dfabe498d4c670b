"""Builds HTML and SVG from values, with escaping by construction. Pure.

A child of an element is either `Html`, made here, or text, which is escaped and made visible. The only
way to turn a given text into `Html` is `RAW`, which is for the style sheet.
"""

from __future__ import annotations

import html
from typing import Final

from gates.report.texts import visible


class Html(str):
    """Markup that was built here and needs no escaping."""

    __slots__ = ()


Child = Html | str | int | None
Attribute = str | int | float | None | bool

RAW: Final = Html  # for constants of this program only
NOTHING: Final = Html("")

_VOID: Final = frozenset(("br", "hr", "meta", "link", "col", "wbr"))


def text(value: str) -> Html:
    """Any text, escaped for an element or a quoted attribute."""
    return Html(html.escape(visible(value), quote=True))


def el(tag: str, /, *children: Child, **attributes: Attribute) -> Html:
    """An element. `_` in an attribute's name becomes `-`, `class_` becomes `class`; None and False omit it."""
    opening = f"<{tag}{''.join(_attribute(k, v) for k, v in attributes.items())}>"
    if tag in _VOID:
        return Html(opening)
    return Html(f"{opening}{join(children)}</{tag}>")


def join(children: object) -> Html:
    """Concatenates children (an iterable); None is skipped."""
    assert not isinstance(children, str)
    return Html("".join(_child(child) for child in children if child is not None))  # type: ignore[attr-defined]


def _child(child: Child) -> str:
    return child if isinstance(child, Html) else text(str(child))


def _attribute(name: str, value: Attribute) -> str:
    if value is None or value is False:
        return ""
    name = name.rstrip("_").replace("_", "-")
    return f" {name}" if value is True else f' {name}="{text(_number(value))}"'


def _number(value: str | int | float | bool) -> str:
    """Coordinates with one decimal, since a page has thousands of them."""
    return f"{value:.1f}".removesuffix(".0") if isinstance(value, float) else str(value)
