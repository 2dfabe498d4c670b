"""Many rows of one mechanism as one test: collecting and reporting a row costs more than most rows do."""

import inspect
from collections.abc import Callable, Iterable
from functools import wraps
from typing import Any

import pytest

Test = Callable[..., Any]
ENOUGH = 20
"""Rows of a test that may fail before the rest is left out: what breaks many rows is seen in the first of them."""


def looped(name: str, values: Iterable[Any], in_groups_of: int | None = None) -> Callable[[Test], Test]:
    """Like `pytest.mark.parametrize` with one name, in one test. Every row runs, until twenty have failed; each that fails is shown with its value.

    in_groups_of: as several tests, of so many rows each; their parameter has `group` for its name.
    """
    rows = tuple(values)
    assert rows, f"no value of {name}: the test would pass without having run"

    def decorate(test: Test) -> Test:
        @wraps(test)
        def run(group: tuple[Any, ...] = rows, **rest: Any) -> None:
            failures = _Failures(name)
            for value in group:
                with failures.of(value):
                    test(**rest, **{name: value})
                if failures.are_enough:
                    break
            failures.show()

        @wraps(test)
        async def run_async(group: tuple[Any, ...] = rows, **rest: Any) -> None:
            failures = _Failures(name)
            for value in group:
                with failures.of(value):
                    await test(**rest, **{name: value})
                if failures.are_enough:
                    break
            failures.show()

        made: Any = run_async if inspect.iscoroutinefunction(test) else run
        signature = inspect.signature(test)
        left = [p for p in signature.parameters.values() if p.name != name]
        assert len(left) < len(signature.parameters), f"{test.__name__} takes no {name}"
        if in_groups_of:
            left.append(inspect.Parameter("group", inspect.Parameter.KEYWORD_ONLY))
            starts = range(0, len(rows), in_groups_of)
            groups = [pytest.param(rows[at : at + in_groups_of], id=f"{name} {at}") for at in starts]
            made = pytest.mark.parametrize("group", groups)(made)
        made.__signature__ = signature.replace(parameters=left)
        looped_test: Test = made
        return looped_test

    return decorate


class _Failures:
    def __init__(self, name: str) -> None:
        self._name = name
        self._found: list[Exception] = []

    def of(self, value: Any) -> "_Row":
        return _Row(self._found, f"{self._name} = {value!r}")

    @property
    def are_enough(self) -> bool:
        return len(self._found) >= ENOUGH

    def show(self) -> None:
        """Raise what failed: a single failure as it is, so that it reads like any other."""
        if len(self._found) == 1:
            raise self._found[0]
        if self._found:
            raise ExceptionGroup(f"{len(self._found)} rows failed", self._found)


class _Row:
    def __init__(self, found: list[Exception], note: str) -> None:
        self._found = found
        self._note = note

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> bool:
        if isinstance(error, Exception):
            error.add_note(self._note)
            self._found.append(error)
            return True
        return False
