"""Tags mean what the lock says, and nothing else."""

from pathlib import Path
from typing import Any

import pytest

from deploy.core.errors import PinError
from deploy.images.pins import lock_path, pin_of, pinned, read_lock, write_lock

ONE, TWO = "sha256:" + "1" * 64, "sha256:" + "2" * 64


@pytest.mark.parametrize(
    ("reference", "image", "pin"),
    [
        ("vllm/vllm-openai:v0.24.0", {"RepoDigests": [f"vllm/vllm-openai@{ONE}"]}, f"vllm/vllm-openai@{ONE}"),
        ("docker.io/vllm/x", {"RepoDigests": [f"vllm/x@{ONE}"]}, f"vllm/x@{ONE}"),
        ("docker.io/library/x:1", {"RepoDigests": [f"x@{ONE}"]}, f"x@{ONE}"),
        ("host:5000/x:1", {"RepoDigests": [f"other/x@{TWO}", f"host:5000/x@{ONE}"]}, f"host:5000/x@{ONE}"),
        ("renamed:1", {"RepoDigests": [f"vllm/x@{ONE}"]}, f"vllm/x@{ONE}"),
        ("built-here:latest", {"RepoDigests": []}, TWO),
        ("built-here:latest", {"RepoDigests": None}, TWO),
    ],
)
def test_a_tag_is_pinned_to_its_registrys_digest_or_to_the_images_id(
    reference: str, image: dict[str, Any], pin: str
) -> None:
    assert pin_of(reference, {**image, "Id": TWO}) == pin


def test_a_tag_is_read_through_the_lock(tmp_path: Path) -> None:
    write_lock(lock_path(tmp_path), {"x:1": f"x@{ONE}"})
    assert pinned("x:1", tmp_path) == f"x@{ONE}"
    assert pinned("x:2", tmp_path) == "x:2"
    assert pinned(f"y@{TWO}", tmp_path) == f"y@{TWO}"


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"images": []}', '{"images": {"a:1": "a:2"}}'])
def test_a_lock_that_pins_nothing_is_refused(tmp_path: Path, text: str) -> None:
    lock_path(tmp_path).write_text(text)
    with pytest.raises(PinError):
        read_lock(lock_path(tmp_path))
