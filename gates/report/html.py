"""HTML and SVG as values, escaped by construction. Pure.

A child is either `Html`, made here, or text; every text becomes visible and escaped on its way in,
so there is no place where one can forget it. Nothing makes `Html` out of a given text but `RAW`,
which is for the style sheet.
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

RAW: Final = Html  # for constants of this program; never for anything that came from outside
NOTHING: Final = Html("")

_VOID: Final = frozenset(("br", "hr", "meta", "link", "col", "wbr"))


def text(value: str) -> Html:
    """Any text, harmless: in an element or in a quoted attribute."""
    return Html(html.escape(visible(value), quote=True))


def el(tag: str, /, *children: Child, **attributes: Attribute) -> Html:
    """An element. `_` in a name is `-`; `class_` is `class`; None and False leave an attribute out."""
    opening = f"<{tag}{''.join(_attribute(k, v) for k, v in attributes.items())}>"
    if tag in _VOID:
        return Html(opening)
    return Html(f"{opening}{join(children)}</{tag}>")


def join(children: object) -> Html:
    """Children one after the other; an iterable of them, without None."""
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
    """Coordinates with one decimal: a page holds thousands of them."""
    return f"{value:.1f}".removesuffix(".0") if isinstance(value, float) else str(value)
