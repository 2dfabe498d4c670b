"""The gateway's image, built by a real Docker Engine on a bare Debian; test_compose_up.py runs it."""

from typing import Any

import pytest

pytestmark = [pytest.mark.ops, pytest.mark.timeout(1800)]

MOST_BYTES = 300 * 10**6
"""What the image may add to its base: llama.cpp's wheel is a third of it."""


def test_the_image_is_small_and_nobodys_root(image: dict[str, Any]) -> None:
    assert image["Config"]["User"] == "10001:10001"
    assert image["Added"] < MOST_BYTES
