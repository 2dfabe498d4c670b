"""What docs/reliability.md and SECURITY.md claim is held by tests that exist.

Behind a claim stands a footnote, and the footnote names its tests.
"""

import ast
import re
from functools import cache
from pathlib import Path

import pytest

from tests.fuzz.targets import TARGETS
from tests.reliability.endless import KINDS

ROOT = Path(__file__).parents[1]
PAGES = ("docs/reliability.md", "SECURITY.md")
UNTESTED = ("Not covered", "Reporting a vulnerability")
"""Sections that say what is not there."""
LOCKS = sorted(lock for lock in (ROOT / "requirements").glob("*.txt") if "-excluded" not in lock.name)
"""Those lists say what is left out of a lock."""
_NOTE = re.compile(r"^\[\^(\w+)\]: (.+)$", re.MULTILINE)
_USED = re.compile(r"\[\^(\w+)\](?!:)")
_TEST = re.compile(r"\[`(\w+)`\]\(([\w./]+)\)")


def text_of(page: str) -> str:
    """The whole page."""
    return (ROOT / page).read_text("utf-8")


def notes(page: str) -> dict[str, str]:
    """The footnotes of a page."""
    return dict(_NOTE.findall(text_of(page)))


def sections(page: str) -> list[tuple[str, str]]:
    """The headings of a page, and what stands below each."""
    text = _NOTE.sub("", text_of(page))
    found = re.findall(r"^##+ (.+)\n((?:(?!##+ ).*\n)*)", text, re.MULTILINE)
    return [(heading, body) for heading, body in found if body.strip() and heading not in UNTESTED]


@cache
def functions_in(path: Path) -> set[str]:
    """The functions at the top of a file."""
    tree = ast.parse(path.read_text("utf-8"))
    return {node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}


@pytest.mark.parametrize(
    ("page", "note", "named"), [(page, *note) for page in PAGES for note in notes(page).items()]
)
def test_every_test_that_a_page_names_is_there(page: str, note: str, named: str) -> None:
    assert _TEST.sub("", named).strip(", ") == "", f"{page} says something else in [^{note}]"
    for name, file in _TEST.findall(named):
        path = (ROOT / page).parent / file
        assert path.is_file() and name.startswith("test_") and name in functions_in(path), f"{file}::{name}"


@pytest.mark.parametrize("page", PAGES)
def test_every_footnote_is_used_and_written(page: str) -> None:
    assert set(_USED.findall(_NOTE.sub("", text_of(page)))) == set(notes(page))
    assert len(_NOTE.findall(text_of(page))) == len(notes(page))


@pytest.mark.parametrize(
    ("page", "heading", "body"),
    [(page, *section) for page in PAGES for section in sections(page)],
    ids=lambda value: value[:40],
)
def test_every_section_names_what_holds_it(page: str, heading: str, body: str) -> None:
    assert _USED.search(body), f"{page}: {heading}"


@pytest.mark.parametrize(
    "claim",
    [
        claim
        for heading, body in sections("SECURITY.md")
        if heading in ("What is not trusted", "Secrets")
        for claim in re.split(r"^- ", body, flags=re.MULTILINE)[1:]
    ],
    ids=lambda claim: claim[2:30],
)
def test_every_claim_about_peers_and_secrets_names_its_test(claim: str) -> None:
    assert _USED.search(claim)


@pytest.mark.parametrize("heading", ["Hostile callers", "What one connection may hold"])
def test_every_row_about_callers_names_its_test(heading: str) -> None:
    rows = dict(sections("docs/reliability.md"))[heading].partition("|---|---|\n")[2].split("\n\n")[0]
    assert not [row for row in rows.splitlines() if not _USED.search(row)]


def table(name: str) -> list[str]:
    """The first column of a table between two marks of docs/reliability.md."""
    body = text_of("docs/reliability.md").split(f"<!-- {name} -->")[1].split(f"<!-- /{name} -->")[0]
    rows = [line for line in body.splitlines() if line.startswith("| ")]
    return [row.split("|")[1].strip() for row in rows[1:]]


def test_the_table_of_endless_replies_is_that_of_the_test() -> None:
    assert table("endless") == list(KINDS)


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
