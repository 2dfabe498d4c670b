"""An env file names compose.yaml's images by tag, and its lock says what they meant; which of the two is older is seen."""

from pathlib import Path

import pytest

from deploy.core.errors import PinError
from deploy.images.pins import check_compose_lock, read_env, tags, write_compose_lock

ONE, TWO = "sha256:" + "1" * 64, "sha256:" + "2" * 64
TEXT = """# A comment.
COMPOSE_PROFILES=cpu
MANNERS_TAG=local
VLLM_IMAGE=scratch
LLAMA_IMAGE_TAG=ghcr.io/x/llama.cpp:server
MANNERS_BASE_TAG=python:3.11
"""
PINS = {"LLAMA_IMAGE": f"ghcr.io/x/llama.cpp@{ONE}", "MANNERS_BASE": TWO}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """An env file with two tags, and an image that is not started."""
    path = tmp_path / "cpu.env"
    path.write_text(TEXT)
    return path


def test_a_lock_is_all_of_the_env_file_and_the_pins(path: Path) -> None:
    assert tags(path) == {"LLAMA_IMAGE": "ghcr.io/x/llama.cpp:server", "MANNERS_BASE": "python:3.11"}
    lock = write_compose_lock(path, PINS)
    with pytest.raises(PinError, match="is a lock; give the file that it was made of"):
        tags(lock)
    assert read_env(lock) == {**read_env(path), **PINS}
    assert sorted(one.name for one in path.parent.iterdir()) == ["cpu.env", "cpu.lock.env"]
    assert check_compose_lock(path) == lock


@pytest.mark.parametrize(
    ("old", "new", "named"),
    [
        (":server", ":server-b9999", "LLAMA_IMAGE_TAG"),
        ("PROFILES=cpu", "PROFILES=cpu,observability", "COMPOSE_PROFILES"),
        ("MANNERS_TAG=local", "MANNERS_TAG=local\nGRAFANA_IMAGE_TAG=g:1", "GRAFANA_IMAGE_TAG"),
        ("MANNERS_BASE_TAG=python:3.11\n", "", "MANNERS_BASE, MANNERS_BASE_TAG"),
    ],
)
def test_a_lock_that_is_older_than_its_env_file_is_found(path: Path, old: str, new: str, named: str) -> None:
    write_compose_lock(path, PINS)
    path.write_text(TEXT.replace(old, new))
    with pytest.raises(PinError, match=f"says now: {named}; manners engine pin --pull --compose {path}"):
        check_compose_lock(path)


def test_a_lock_with_a_tag_written_into_it_is_found(path: Path) -> None:
    write_compose_lock(path, {**PINS, "LLAMA_IMAGE": "ghcr.io/x/llama.cpp:server"})
    with pytest.raises(PinError, match="pins no digest: LLAMA_IMAGE"):
        check_compose_lock(path)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("LLAMA_IMAGE=x:1", "is not pinned; a tag is written as LLAMA_IMAGE_TAG=x:1"),
        ("LLAMA_IMAGE_TAG=", "is not an image's NAME:TAG"),
        ("LLAMA_IMAGE_TAG=x:1  # the newest", "is not an image's NAME:TAG"),
        ("LLAMA_IMAGE_TAG=${OTHER}", "is not an image's NAME:TAG"),
        ("export LLAMA_IMAGE_TAG=x:1", "line 1: .* is not NAME=VALUE"),
        ("COMPOSE_PROFILES=cpu", "names no image"),
        ("\udcff", "is not UTF-8"),
    ],
)
def test_an_env_file_that_names_images_otherwise_is_refused(path: Path, text: str, why: str) -> None:
    path.write_bytes(text.encode("utf-8", "surrogateescape"))
    with pytest.raises(PinError, match=why):
        tags(path)
