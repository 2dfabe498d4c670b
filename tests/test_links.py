"""What a page or a comment points at can be opened: files of the repository, and headings of its pages."""

import re
import subprocess
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).parents[1]
FILES: Final = tuple(subprocess.check_output(["git", "ls-files"], cwd=ROOT, text=True).split("\n"))
PAGES: Final = tuple(name for name in FILES if name.endswith(".md") and not (ROOT / name).is_symlink())
CODE: Final = tuple(
    name
    for name in FILES
    if name.startswith(("app/", "deploy/", "gates/", "quantizer/"))
    and name.endswith((".py", ".toml", ".yml"))
)
_LINK: Final = re.compile(r"\]\(([^)\s:#…]*)(?:#([\w-]+))?\)")
_CITED: Final = re.compile(r"(?<![\w/])((?:docs|quantizer)/[\w./-]+\.md)\b(?:#([\w-]+))?")


def anchors(page: Path) -> set[str]:
    """The headings of a page, as GitHub names them."""
    found = re.findall(r"^#+ (.+)$", page.read_text("utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading).strip().lower().replace(" ", "-") for heading in found}


def missing(folder: Path, page: Path, links: list[tuple[str, str]]) -> list[str]:
    """Links whose file is not there, or whose page has no such heading."""
    gone = []
    for name, heading in links:
        target = (folder / name).resolve() if name else page
        if not target.exists() or (heading and target.suffix == ".md" and heading not in anchors(target)):
            gone.append(f"{name}#{heading}")
    return gone


@pytest.mark.parametrize("name", PAGES)
def test_every_link_of_a_page_can_be_opened(name: str) -> None:
    page = ROOT / name
    assert not missing(page.parent, page, _LINK.findall(page.read_text("utf-8")))


def test_every_page_that_shipped_code_cites_can_be_opened() -> None:
    gone = {name: missing(ROOT, ROOT, _CITED.findall((ROOT / name).read_text("utf-8"))) for name in CODE}
    assert not {name: links for name, links in gone.items() if links}
