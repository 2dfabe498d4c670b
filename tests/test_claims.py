"""What SECURITY.md and docs/reliability.md claim is held by tests that exist."""

import ast
import re
from functools import cache
from pathlib import Path

import pytest

from tests.fuzz.targets import TARGETS
from tests.looped import looped
from tests.reliability.endless import KINDS

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


@looped("section", text_of("docs/reliability.md").split("\n## ")[1:])
def test_a_section_names_the_files_of_its_tests(section: str) -> None:
    """tests/test_links.py opens them."""
    assert "\nTests: [test_" in section or section.startswith("Not covered"), section.partition("\n")[0]


def table(name: str) -> list[str]:
    """The first column of a table between two marks of docs/reliability.md."""
    body = text_of("docs/reliability.md").split(f"<!-- {name} -->")[1].split(f"<!-- /{name} -->")[0]
    rows = [line for line in body.splitlines() if line.startswith("| ")]
    return [row.split("|")[1].strip() for row in rows[1:]]


def test_the_table_of_endless_replies_is_that_of_the_test() -> None:
    assert sorted("; ".join(table("endless")).split("; ")) == sorted(KINDS)


def test_the_table_of_fuzzing_is_that_of_its_targets() -> None:
    """`safetensors` needs the quantizer's packages (tests/fuzz/weights.py)."""
    named = [row.rpartition("(`")[2].removesuffix("`)") for row in table("fuzzing")]
    assert sorted(named) == sorted([*TARGETS, "safetensors"])


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
