"""What the commands of the parts name is there: a wrong name would be found on a GPU, where time is short."""

import re
import shlex
from importlib.util import find_spec

import pytest

from quantizer.bench.real_size import PATH_STEPS
from tests.gpu.parts import PARTS, GpuPart

each = pytest.mark.parametrize("part", PARTS, ids=lambda part: part.name)


def after(part: GpuPart, option: str) -> list[str]:
    """The words behind an option, wherever it stands."""
    words = shlex.split(part.command)
    return [words[at + 1] for at, word in enumerate(words) if word == option]


@each
def test_its_modules_can_be_found(part: GpuPart) -> None:
    named = re.findall(r"-m ([\w.]+)", part.command)
    assert named and [name for name in named if find_spec(name) is None] == []


@each
def test_its_steps_are_steps(part: GpuPart) -> None:
    named = {step for words in after(part, "--steps") for step in words.split(",")}
    assert named <= {step.name for step in PATH_STEPS}


@each
def test_a_command_that_can_end_by_itself_is_told_what_time_it_has(part: GpuPart) -> None:
    assert after(part, "--budget") == ["{budget}"] * part.command.count("bench.real_size ")
