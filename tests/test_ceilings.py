"""The size of the project has ceilings, and they only fall: who removes lines lowers the number here.

The aim, in lines of Python: app 20,000 (app/stream 3,300 of them), gates 10,000, quantizer 14,500 with docs/study, deploy 7,000, tests 52,000;
and 45,000 words of Markdown. The ceiling of words leaves out CHANGELOG.md, which every change adds to; the aim counts it.
"""

import subprocess
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).parents[1]
LINES: Final = {
    "app": 19_998,
    "app/stream": 3_200,
    "gates": 9_998,
    "quantizer": 14_185,
    "docs/study": 311,
    "deploy": 6_907,
    "tests": 50_268,
}
WORDS: Final = 36_090


def _texts(pattern: str) -> list[str]:
    """The files that git knows, or would add, and that lie in the tree once; a link is no second one."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "--", pattern]
    paths = [ROOT / name for name in subprocess.check_output(command, cwd=ROOT, text=True).splitlines()]
    return [path.read_text("utf-8") for path in paths if path.is_file() and not path.is_symlink()]


@pytest.mark.parametrize("folder", LINES)
def test_a_folder_has_no_more_lines_of_python_than_its_ceiling(folder: str) -> None:
    count = sum(text.count("\n") for text in _texts(f"{folder}/*.py"))
    assert 0 < count <= LINES[folder], f"{folder}: {count} lines; remove some, the ceiling does not rise"


def test_the_pages_have_no_more_words_than_their_ceiling() -> None:
    count = sum(len(text.split()) for text in _texts("*.md")) - len(
        (ROOT / "CHANGELOG.md").read_text("utf-8").split()
    )
    assert 0 < count <= WORDS, f"{count} words of Markdown; remove some, the ceiling does not rise"
