"""Estimates in how many ways at once an engine that generates by a JSON schema must read a text. Pure.

llama.cpp makes a grammar of a schema and follows every alternative that the text so far may belong to, in its only loop.
It walks to each by every path: eight definitions of nine references to the next one stop it before the first token. It
compares each with all others: thousands of values of an `enum` cost seconds. And where two alternatives that begin alike
lead back to the union that they are in, their number doubles with each level that the model writes.
"""

import sys
from collections.abc import Generator, Iterator
from typing import Any

MAX_WAYS = 1024
"""OpenAI takes 1,000 values of enums in a schema. 2,000 that are alike cost llama.cpp 1.6 s of CPU, 9,000 more than callers wait."""
MAX_STEPS = 200_000
"""Of the estimate. A schema of 20,000 values takes a few times as many, unless references multiply what is compared."""

_UNIONS = ("anyOf", "oneOf")
_NEVER = sys.maxsize
_VALUE: "_Beginning" = ("value",)
_SCALAR: "_Ways" = {_VALUE: (1, False)}

_Beginning = tuple[str, ...]
_Ways = dict[_Beginning, tuple[int, bool]]
"""By how texts of a schema begin: how many alternatives begin so, and whether one of them leads back to an open schema."""
_Found = tuple[_Ways, int]
"""The ways of a schema, and when the outermost schema was opened that it leads back to."""


def has_many_ways(schema: Any) -> bool:
    """Whether a text may have to be read in more than MAX_WAYS ways at once."""
    return _Walk(schema).exceeds()


class _Walk:
    """Depth first, each schema once, on a stack of its own: a chain of references may have thousands of links."""

    def __init__(self, root: Any) -> None:
        self._root = root
        self._known: dict[int, _Found] = {}  # by the schema's id: the root keeps them all alive
        self._open: dict[int, int] = {}  # those on the way from the root, and when they were opened
        self._times: set[int] = set()  # the same times
        self._led_back: dict[int, int] = {}  # from each that was open once, by that time
        self._steps = 0

    def exceeds(self) -> bool:
        """See `has_many_ways`."""
        path = [self._visit(self._root)]
        found: _Found | None = None
        while path:
            try:
                node = path[-1].send(found)  # type: ignore[arg-type]  # None begins it
            except StopIteration as over:
                path.pop()
                found = over.value
                if sum(count for count, _ in over.value[0].values()) > MAX_WAYS:
                    return True
                continue
            self._steps += 1
            if self._steps > MAX_STEPS:
                return True
            found = self._look_up(node)
            if found is None:
                path.append(self._visit(node))
        return False

    def _look_up(self, node: Any) -> _Found | None:
        """What is known of a schema without a visit."""
        if not isinstance(node, dict):
            return _SCALAR, _NEVER
        if (opened := self._open.get(id(node))) is not None:
            return {_VALUE: (1, True)}, opened
        return self._known.get(id(node))

    def _visit(self, node: Any) -> Generator[Any, _Found, _Found]:
        """Yields each schema below, is sent what was found there, and returns what was found here."""
        if not isinstance(node, dict):
            return _SCALAR, _NEVER
        opened = self._open[id(node)] = len(self._known) + len(self._open) + 1
        self._times.add(opened)
        ways: _Ways = {}
        low, most, leads_back = _NEVER, 1, False
        for child in self._alternatives(node):
            found, back = yield child
            back = self._outermost(back)
            low = min(low, back)
            self._add(ways, found, back)
        # Parts come one after the other, or are told apart by their names: the one with most ways counts.
        for child in _parts(node):
            found, back = yield child
            back = self._outermost(back)
            low = min(low, back)
            most = max(most, max(count for count, _ in found.values()))
            leads_back |= back in self._times
        if most > 1 or leads_back or not ways:
            own = {_beginning(node): (most * _values(node), leads_back)}
            for _ in range(_repeats(node)):
                self._add(ways, own, low)
        del self._open[id(node)]
        self._times.discard(opened)
        self._led_back[opened] = low
        known = self._known[id(node)] = _joined(ways), low
        return known

    def _outermost(self, time: int) -> int:
        """The open schema that is led back to, if the one of this time is no longer open."""
        while time not in self._times and time != _NEVER:
            self._steps += 1
            further = self._led_back[time]
            time = further if further < time else _NEVER
        return time

    def _add(self, ways: _Ways, more: _Ways, back: int) -> None:
        """Alternatives beside those that are there."""
        self._steps += len(more)
        is_open = back in self._times
        for beginning, (count, leads_back) in more.items():
            before, led_back = ways.get(beginning, (0, False))
            leads_back = leads_back and is_open
            ways[beginning] = _sum(before, count, twice=leads_back and led_back), leads_back or led_back

    def _alternatives(self, node: dict[str, Any]) -> Iterator[Any]:
        """A text of the schema is one of one of these."""
        if isinstance(reference := node.get("$ref"), str):
            yield self._target(reference)
        for key in _UNIONS:
            if isinstance(listed := node.get(key), list):
                yield from listed

    def _target(self, reference: str) -> Any:
        """What a reference within the schema points to; None: nothing."""
        target: Any = self._root if reference.startswith("#") else None
        for part in reference.split("/")[1:]:
            if isinstance(target, dict):
                target = target.get(part.replace("~1", "/").replace("~0", "~"))
            elif isinstance(target, list) and part.isdecimal() and len(part) < 9:
                target = target[int(part)] if int(part) < len(target) else None
            else:
                return None
        return target


def _parts(node: dict[str, Any]) -> Iterator[Any]:
    """Schemas of what is in an object or an array; those of `allOf` are merged into one object."""
    if isinstance(properties := node.get("properties"), dict):
        yield from properties.values()
    for key in ("items", "prefixItems", "allOf", "additionalProperties"):
        if (listed := node.get(key)) is not None:
            yield from listed if isinstance(listed, list) else (listed,)


def _values(node: dict[str, Any]) -> int:
    """How many values an enum lists."""
    listed = node.get("enum")
    return max(len(listed), 1) if isinstance(listed, list) else 1


def _repeats(node: dict[str, Any]) -> int:
    """As many types as it lists: each becomes an alternative, twice if it is there twice."""
    kinds = node.get("type")
    return min(max(len(kinds), 1), MAX_WAYS + 1) if isinstance(kinds, list) else 1


def _beginning(node: dict[str, Any]) -> _Beginning:
    """What tells the schema's texts from others soon: an object's first property, and its value if that is given."""
    properties, required = node.get("properties"), node.get("required")
    if not isinstance(properties, dict):
        if node.get("type") == "object" or "additionalProperties" in node:
            return ("object",)
        return (
            ("array",) if node.get("type") == "array" or "items" in node or "prefixItems" in node else _VALUE
        )
    needed = {name for name in required if isinstance(name, str)} if isinstance(required, list) else set()
    first = next((name for name in properties if name in needed), None)
    if first is None:
        return ("object",)
    value = properties[first] if isinstance(properties[first], dict) else {}
    listed = value.get("enum")
    const = listed[0] if isinstance(listed, list) and len(listed) == 1 else value.get("const")
    return ("object", first, str(const)) if isinstance(const, str | int) else ("object", first)


def _joined(ways: _Ways) -> _Ways:
    """Beginnings of which one is a part of the other are the same."""
    joined: _Ways = {}
    for beginning, (count, leads_back) in ways.items():
        wider = next((part for part in (beginning[:1], beginning[:2]) if part in ways), beginning)
        before, led_back = joined.get(wider, (0, False))
        joined[wider] = _sum(before, count, twice=leads_back and led_back), leads_back or led_back
    return joined


def _sum(one: int, other: int, *, twice: bool) -> int:
    """Of ways; too many, if they lead back twice."""
    return MAX_WAYS + 1 if twice else min(one + other, MAX_WAYS + 1)
