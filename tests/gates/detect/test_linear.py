"""The signs of thoughts are looked for in what a model says, on the event loop: none may take more than linear work.

Python's `re` backtracks. A repetition without a bound is safe only over one narrow class that what follows
it is not part of; a group or a wide class (`\\S`, `.`, `[^...]`) that is repeated without a bound is scanned
again from every start.
"""

from collections.abc import Iterator
from importlib import import_module
from typing import Any

import pytest

from gates.detect.leak import SIGNS

code, parser = import_module("re._constants"), import_module("re._parser")  # whose types nobody has written
REPEATS = (code.MAX_REPEAT, code.MIN_REPEAT)
WIDE = (code.SUBPATTERN, code.BRANCH, code.ANY, code.NOT_LITERAL, *REPEATS)


def inside(operation: Any, argument: Any) -> Iterator[Any]:
    """The parts of an operation."""
    if operation in REPEATS:
        yield argument[2]
    elif operation is code.SUBPATTERN:
        yield argument[3]
    elif operation is code.BRANCH:
        yield from argument[1]
    elif operation in (code.ASSERT, code.ASSERT_NOT):
        yield argument[1]


def unsafe(tree: Any) -> Iterator[str]:
    for operation, argument in tree:
        if operation in REPEATS and argument[1] == code.MAXREPEAT:
            (what, of), *more = argument[2]
            negated = what is code.IN and (
                of[0][0] is code.NEGATE or (code.CATEGORY, code.CATEGORY_NOT_SPACE) in of
            )
            if more or negated or what in WIDE:
                yield f"{what} {of}"[:80]
        for part in inside(operation, argument):
            yield from unsafe(part)


@pytest.mark.parametrize("number", range(len(SIGNS)))
def test_no_group_and_no_wide_class_repeats_without_a_bound(number: int) -> None:
    regex = SIGNS[number].regex
    assert list(unsafe(parser.parse(regex.pattern, regex.flags & ~code.SRE_FLAG_UNICODE))) == []


@pytest.mark.parametrize("pattern", [r"(?:a,)*b", r"x\S*_\S*y", r"[^,]+,", r"(a|b)+", r"(?:a{0,3})*"])
def test_the_check_finds_what_it_looks_for(pattern: str) -> None:
    assert list(unsafe(parser.parse(pattern)))
