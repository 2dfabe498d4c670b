"""An env file names compose.yaml's images by tag, and its lock says what they meant."""

from pathlib import Path

import pytest

from deploy.core.errors import PinError
from deploy.images.pins import tags, write_compose_lock

ONE, TWO = "sha256:" + "1" * 64, "sha256:" + "2" * 64
TEXT = """# A comment.
COMPOSE_PROFILES=cpu
VLLM_IMAGE=scratch
LLAMA_IMAGE_TAG=ghcr.io/x/llama.cpp:server
MANNERS_BASE_TAG=python:3.11
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "cpu.env"


def test_a_lock_is_all_of_the_env_file_and_the_pins(path: Path) -> None:
    path.write_text(TEXT)
    assert tags(path) == {"LLAMA_IMAGE": "ghcr.io/x/llama.cpp:server", "MANNERS_BASE": "python:3.11"}
    lock = write_compose_lock(path, {"LLAMA_IMAGE": f"ghcr.io/x/llama.cpp@{ONE}", "MANNERS_BASE": TWO})
    assert lock.read_text() == TEXT + f"LLAMA_IMAGE=ghcr.io/x/llama.cpp@{ONE}\nMANNERS_BASE={TWO}\n"
    assert sorted(one.name for one in path.parent.iterdir()) == ["cpu.env", "cpu.lock.env"]
    with pytest.raises(PinError, match="names no image to pin"):
        tags(lock)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (TEXT + "GRAFANA_IMAGE=x:1", "is not pinned; write GRAFANA_IMAGE_TAG=x:1"),
        ("LLAMA_IMAGE_TAG=", "is not an image's NAME:TAG"),
        ("LLAMA_IMAGE_TAG=x:1  # the newest", "is not an image's NAME:TAG"),
        ("LLAMA_IMAGE_TAG=${OTHER}", "is not an image's NAME:TAG"),
        ("COMPOSE_PROFILES=cpu", "names no image"),
        ("\udcff", "utf-8"),
    ],
)
def test_an_env_file_that_names_images_otherwise_is_refused(path: Path, text: str, why: str) -> None:
    path.write_bytes(text.encode("utf-8", "surrogateescape"))
    with pytest.raises(PinError, match=why):
        tags(path)
