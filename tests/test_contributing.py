"""CONTRIBUTING.md names files and tables that exist: a recipe that is renamed away helps nobody."""

import re
from pathlib import Path

import pytest

from tests.looped import looped

ROOT = Path(__file__).parent.parent
TEXT = (ROOT / "CONTRIBUTING.md").read_text("utf-8")
PATHS = sorted(
    {
        name
        for name in re.findall(r"`([a-z_.]+/[\w./-]+)`", TEXT)
        if not re.search(r"[A-Z]{2}|\bx\.py", name)  # NAME and x.py stand for a file that is to be written
    }
)
TARGETS = sorted(set(re.findall(r"`make ([a-z-]+)`", TEXT)) | set(re.findall(r"^make ([a-z-]+)", TEXT, re.M)))


@looped("name", PATHS)
def test_a_file_that_it_names_is_there(name: str) -> None:
    assert (ROOT / name).exists() or name.startswith((".venv", ".work"))


@looped("name", sorted(set(re.findall(r"python -m ([\w.]+)", TEXT))))
def test_a_module_that_it_runs_is_there(name: str) -> None:
    path = ROOT / name.replace(".", "/")
    assert path.with_suffix(".py").is_file() or (path / "__main__.py").is_file()


@looped("name", TARGETS)
def test_a_target_that_it_names_is_one_of_the_makefile(name: str) -> None:
    assert re.search(rf"^{name}:", (ROOT / "Makefile").read_text("utf-8"), re.MULTILINE)


SECTIONS = pytest.mark.parametrize(
    "section", TEXT.split("\n- **")[1:], ids=lambda text: text.partition(".")[0]
)


def places(section: str, name: str) -> list[Path]:
    """Where a file may be that the section names without its folder: beside one that it names in full."""
    full = [ROOT / path for path in re.findall(r"`([a-z_.]+/[\w./*-]+)`", section)]
    folders = {path if path.is_dir() else path.parent for path in full}
    return [folder / name for folder in folders if (folder / name).is_file()]


@SECTIONS
def test_a_file_that_it_names_without_its_folder_is_beside_another_of_that_section(section: str) -> None:
    short = re.findall(r"`([\w-]+\.(?:py|js|json|toml|ya?ml))`", section)
    assert not [name for name in short if not places(section, name)]


@SECTIONS
def test_a_table_that_it_names_is_in_a_file_of_that_section(section: str) -> None:
    """Names in capitals are constants of the files that the same section names."""
    names = re.findall(r"`([\w./-]+\.(?:py|js))`", section)
    files = {path for name in names for path in (places(section, name) if "/" not in name else [ROOT / name])}
    code = "".join(path.read_text("utf-8") for path in files if path.is_file())
    missed = [name for name in re.findall(r"`(_?[A-Z]{2}[A-Z_]+)`", section) if name not in code]
    assert not missed


def test_a_slow_test_is_in_a_file_that_make_test_slow_finds() -> None:
    """It looks for the mark in files of tests: nowhere else may it be given a name, or be used."""
    found = {
        path for path in (ROOT / "tests").rglob("*.py") if re.search(r"mark\.slow", path.read_text("utf-8"))
    }
    assert found and not [path for path in found if not path.name.startswith("test_")]
    assert not [
        path for path in found if re.search(r"^\w+ = pytest\.mark\.slow", path.read_text("utf-8"), re.M)
    ]
