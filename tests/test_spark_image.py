"""Dockerfile.spark: made of what is here, with the versions that `make quantizer` installs and `make aarch64` checks."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
IMAGE = (ROOT / "Dockerfile.spark").read_text("utf-8")
MAKEFILE = (ROOT / "Makefile").read_text("utf-8")


def test_it_copies_what_its_dockerignore_lets_in() -> None:
    copied = re.findall(r"^COPY (?!--from)(.+) \S+$", IMAGE, re.MULTILINE)
    let_in = re.findall(r"^!(.+)$", (ROOT / "Dockerfile.spark.dockerignore").read_text("utf-8"), re.MULTILINE)

    assert sorted(path for paths in copied for path in paths.split()) == sorted(let_in)
    assert all((ROOT / path).exists() for path in let_in)


@pytest.mark.parametrize("name", ["TORCH", "PTXAS"])
def test_its_versions_are_those_that_are_checked(name: str) -> None:
    (built,) = re.findall(rf"^ARG {name}=(.+)$", IMAGE, re.MULTILINE)
    (checked,) = re.findall(rf"^{name} +:= (.+)$", MAKEFILE, re.MULTILINE)

    assert built == checked
