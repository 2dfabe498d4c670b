"""No test depends on a second of wall clock: what bounds a wait must end only a hang (CONTRIBUTING.md, "Tests").

Read from the source of every test: bounds of waits, and assertions that some time was short. A time that is to
pass, in a test of a deadline, is inside `pytest.raises`, or is an argument of what is tested.
"""

import ast
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

TESTS = Path(__file__).parent
LEAST = 30.0
"""Seconds. A machine that needs longer for what takes milliseconds is broken."""
MEASURES = ("bench", "demo")
"""Folders of programs that measure, and are no tests."""
CLOCKS = {"monotonic", "perf_counter", "time"}
BOUNDS = {
    "timeout": 0,
    "wait_for": 1,
    "wait": 0,
    "communicate": 1,
    "run": 99,
    "join": 0,
    "create_connection": 1,
}
"""Calls that wait, and which of their arguments is the bound, if it has no name (`timeout`)."""


def short_waits(tree: ast.Module) -> Iterator[int]:
    """The lines of waits with a bound under LEAST."""
    constants = {
        target.id: node.value.value
        for node in tree.body
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    nodes = [*ast.walk(tree)]
    loops = [node.test for node in nodes if isinstance(node, ast.While)]  # these wait again
    blocks = [node for node in nodes if _wants_timeout(node)]
    expected = {id(inner) for node in [*loops, *blocks] for inner in ast.walk(node)}
    for node in nodes:
        if isinstance(node, ast.Call) and id(node) not in expected and _name(node.func) in BOUNDS:
            position = BOUNDS[_name(node.func)]
            bounds = [word.value for word in node.keywords if word.arg == "timeout"]
            bounds += node.args[position : position + 1]
            if any(_is_short(bound, constants) for bound in bounds):
                yield node.lineno


def short_durations(tree: ast.Module) -> Iterator[int]:
    """The lines of assertions that a time since some moment is less than a number."""
    for function in ast.walk(tree):
        if not isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        durations = {
            target.id
            for node in ast.walk(function)
            if isinstance(node, ast.Assign) and _is_duration(node.value, set())
            for target in node.targets
            if isinstance(target, ast.Name)
        }
        for check in ast.walk(function):
            if isinstance(check, ast.Assert):
                yield from _upper_bounds(check, durations)


def _upper_bounds(check: ast.Assert, durations: set[str]) -> Iterator[int]:
    for node in ast.walk(check.test):
        if not isinstance(node, ast.Compare):
            continue
        sides = [node.left, *node.comparators]
        for left, how, right in zip(sides, node.ops, sides[1:], strict=False):
            small = left if isinstance(how, ast.Lt | ast.LtE) else right
            if isinstance(how, ast.Lt | ast.LtE | ast.Gt | ast.GtE) and _is_duration(small, durations):
                yield node.lineno


def _is_duration(node: ast.expr, durations: set[str]) -> bool:
    if isinstance(node, ast.Name):
        return node.id in durations
    return (
        isinstance(node, ast.BinOp)
        and isinstance(node.op, ast.Sub)
        and isinstance(node.left, ast.Call)
        and _name(node.left.func) in CLOCKS
    )


def _wants_timeout(node: ast.AST) -> bool:
    if not isinstance(node, ast.With | ast.AsyncWith):
        return False
    return any(
        isinstance(call := item.context_expr, ast.Call)
        and _name(call.func) == "raises"
        and any(_name(argument) == "TimeoutError" for argument in call.args)
        for item in node.items
    )


def _is_short(node: ast.expr, constants: Mapping[str, object]) -> bool:
    value = constants.get(node.id) if isinstance(node, ast.Name) else getattr(node, "value", None)
    return isinstance(value, int | float) and not isinstance(value, bool) and value < LEAST


def _name(node: ast.expr) -> str:
    return node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")


def findings(find: Callable[[ast.Module], Iterator[int]], words: str) -> list[str]:
    """Where it finds something in the tests, of which only files with one of these words are parsed."""
    files = [path for path in sorted(TESTS.rglob("*.py")) if path.relative_to(TESTS).parts[0] not in MEASURES]
    texts = {path: text for path in files if re.search(words, text := path.read_text("utf-8"))}
    return [f"{path}:{line}" for path, text in texts.items() for line in find(ast.parse(text))]


def test_every_bound_of_a_wait_ends_only_a_hang() -> None:
    assert not findings(short_waits, r"timeout|wait_for\(|\.wait\(|(?<![\"'])\.join\(|create_connection"), (
        "take PATIENCE (tests.scale)"
    )


def test_no_duration_is_asserted_to_be_short() -> None:
    found = findings(short_durations, r"(monotonic|perf_counter|time)\(\) - ")
    assert not found, "assert on order or on a count, by an event or with a clock of the test's own"
