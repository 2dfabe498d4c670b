"""No text tells anybody to install a package that nobody here owns: whoever takes its name on an index runs code on that host."""

import re
import subprocess
import tomllib
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[1]
OWN: Final = "manners"
_COMMAND: Final = re.compile(
    r"\b(?:pipx?|uvx?|pip3)\b(?: pip)? (?:install|download|add|run|tool install)\b([^\n`;|&]*)"
)
_NAME: Final = re.compile(
    rf"(?<![\w./-]){OWN}(?![\w.=-]*\.(?:whl|toml|egg-info))(?:\[[\w,]+\])?(?=[\s'\"=<>~!)]|$)"
)
_PINNED: Final = re.compile(r"\b([a-z][\w-]+)==([\d.]+)")


def files() -> list[str]:
    """Every tracked file that is text and no lock."""
    names = subprocess.check_output(["git", "ls-files"], cwd=ROOT, text=True).splitlines()
    return [name for name in names if not name.startswith(("requirements/", "models/"))
            and name.endswith((".py", ".md", ".toml", ".yml", ".yaml", ".env", ".js", ".html", "Makefile", "Dockerfile", "run", ".spark"))]  # fmt: skip


def unowned(text: str) -> list[str]:
    """Commands in a text that would install this project by its name from an index, and its extras by that name."""
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["optional-dependencies"]
    named = re.findall(rf"(?<![\w./*-]){OWN}\[(?:{'|'.join(extras)})\]", text)
    return named + [command for command in _COMMAND.findall(text) if _NAME.search(command)]


def test_a_command_that_installs_us_from_an_index_is_found_and_one_of_files_is_not() -> None:
    assert unowned(f"uv pip install '{OWN}" + "[docker]==0.2'") and unowned(f"needs {OWN}" + "[otel]")
    assert not unowned(f"pip install '.[docker]' dist/{OWN}-0.3.0-py3-none-any.whl && {OWN} serve")


def test_no_text_names_a_package_that_we_do_not_own() -> None:
    found = {
        name: said
        for name in files()
        if name != str(Path(__file__).relative_to(ROOT))
        and (said := unowned((ROOT / name).read_text("utf-8")))
    }
    assert not found


def test_what_messages_pin_is_what_the_locks_pin() -> None:
    locked = {
        (name.lower(), version)
        for lock in ("dev", "quantizer", "redis")
        for name, version in re.findall(
            r"^([\w.-]+)==([\w.]+)", (ROOT / f"requirements/{lock}.txt").read_text(), re.M
        )
    }
    said = {
        pin
        for name in files()
        if name.startswith(("app/", "deploy/", "gates/", "quantizer/")) and name.endswith(".py")
        for command in _COMMAND.findall((ROOT / name).read_text("utf-8"))
        for pin in _PINNED.findall(command)
    }
    assert said and said <= locked
