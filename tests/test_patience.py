"""No test depends on a second of wall clock: what bounds a wait must end only a hang (CONTRIBUTING.md, "Tests").

Read from the source of every test: bounds of waits, and assertions that some time was short. A time that is to
pass, in a test of a deadline, is inside `pytest.raises`, or is an argument of what is tested.
"""

import ast
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

TESTS = Path(__file__).parent
LEAST = 30.0
"""Seconds. A machine that needs longer for what takes milliseconds is broken."""
MEASURES = ("bench", "demo")
"""Folders of programs that measure, and are no tests."""
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


def texts() -> Iterator[tuple[Path, str]]:
    """The files of tests."""
    for path in sorted(TESTS.rglob("*.py")):
        if path.relative_to(TESTS).parts[0] not in MEASURES:
            yield path, path.read_text("utf-8")


def test_every_bound_of_a_wait_ends_only_a_hang() -> None:
    words = re.compile(r"timeout|wait_for\(|\.wait\(|(?<![\"'])\.join\(|create_connection")
    found = [
        f"{path}:{n}" for path, text in texts() if words.search(text) for n in short_waits(ast.parse(text))
    ]
    assert not found, "take PATIENCE (tests.scale)"


def test_no_duration_is_asserted_to_be_short() -> None:
    clock = r"(?:monotonic|perf_counter|time)\(\)"
    short = re.compile(
        rf"assert [^\n]*{clock} - [^\n]*<|assert [^\n]*>=? *[\w.]*{clock} - |(\w+) = [\w.]*{clock} - [^\n]*\n(?:[^\n]*\n){{0,5}}? *assert \1 <"
    )
    found = [str(path) for path, text in texts() if path.name != "test_patience.py" and short.search(text)]
    assert not found, "assert on order or on a count, by an event or with a clock of the test's own"
