"""What the commands of the parts name is there: a wrong name would be found on a GPU, where time is short."""

import re
from importlib.util import find_spec

import pytest

from tests.gpu.parts import PARTS, GpuPart


@pytest.mark.parametrize("part", PARTS, ids=lambda part: part.name)
def test_its_modules_can_be_found(part: GpuPart) -> None:
    named = re.findall(r"-m ([\w.]+)", part.command)
    assert named and [name for name in named if find_spec(name) is None] == []
