"""What SECURITY.md claims is held by tests that exist."""

import ast
import re
from functools import cache
from pathlib import Path

import pytest

from tests.looped import looped

ROOT = Path(__file__).parents[1]
LOCKS = sorted(lock for lock in (ROOT / "requirements").glob("*.txt") if "-excluded" not in lock.name)
"""Those lists say what is left out of a lock."""
_TEST = re.compile(r"\[`(\w+)`\]\(([\w./]+)\)")


def text_of(page: str) -> str:
    """The whole page."""
    return (ROOT / page).read_text("utf-8")


def claims() -> list[tuple[str, str]]:
    """Each claim of SECURITY.md, and the cell that names its tests."""
    rows = re.findall(r"^\| [^|]+ \| ([^|]+) \| ([^|]+) \|$", text_of("SECURITY.md"), re.MULTILINE)
    return rows[1:]


@cache
def functions_in(path: Path) -> set[str]:
    """The functions at the top of a file."""
    tree = ast.parse(path.read_text("utf-8"))
    return {node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}


@looped("claim", claims())
def test_a_claim_names_tests_that_are_there(claim: tuple[str, str]) -> None:
    words, cell = claim
    named = _TEST.findall(cell)
    assert named and _TEST.sub("", cell).strip(", ") == "", words
    for name, file in named:
        path = ROOT / file
        assert path.is_file() and name.startswith("test_") and name in functions_in(path), f"{file}::{name}"


def test_a_slow_test_is_in_a_file_that_make_test_slow_finds() -> None:
    """It looks for the mark in files of tests: nowhere else may it be used, or be given a name."""
    texts = {path: path.read_text("utf-8") for path in (ROOT / "tests").rglob("*.py")}
    found = {path: text for path, text in texts.items() if re.search(r"mark\.slow", text)}
    assert found and all(path.name.startswith("test_") for path in found)
    assert not [path for path, text in found.items() if re.search(r"^\w+ = pytest\.mark\.slow", text, re.M)]


@pytest.mark.parametrize("lock", LOCKS, ids=lambda lock: lock.stem)
def test_every_locked_package_has_a_hash(lock: Path) -> None:
    """With one of them in a file, pip looks at all."""
    text = re.sub(r"^\s*#.*\n", "", lock.read_text("utf-8"), flags=re.MULTILINE)
    entries = [entry for entry in re.split(r"\n(?=[A-Za-z0-9])", text) if "==" in entry]
    assert entries and not [entry.split()[0] for entry in entries if "--hash=sha256:" not in entry]


def test_every_action_is_pinned_by_its_commit_with_the_tag_beside_it() -> None:
    """A tag can be moved to other code."""
    files = (ROOT / ".github" / "workflows").glob("*.yml")
    used = [action for path in files for action in re.findall(r"uses: (.+)", path.read_text("utf-8"))]
    assert used and all(re.fullmatch(r"[\w-]+/[\w-]+@[0-9a-f]{40}  # v[0-9.]+", action) for action in used)
