"""E2M1: values and ties from the format's definition, nearest by brute force, and the order of nibbles."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

INSTALL = "needs the quantizer extra: pip install -e '.[quantizer]'"
torch = pytest.importorskip("torch", reason=INSTALL)

from quantizer.nvfp4 import grid  # noqa: E402

pytestmark = [pytest.mark.torch, pytest.mark.usefixtures("one_thread")]

VALUES = [0, 0.5, 1, 1.5, 2, 3, 4, 6, 0, -0.5, -1, -1.5, -2, -3, -4, -6]
"""Code to value, from OCP MX 1.0, table 5: one exponent bias, one mantissa bit, one subnormal."""


def one(function: Any, value: float) -> float:
    """A function of tensors, of one number."""
    result: float = function(torch.tensor([value])).item()
    return result


@given(st.floats(-8, 8, width=32, allow_subnormal=False))
def test_no_other_value_is_nearer(x: float) -> None:
    value = one(grid.nearest, x)

    distance = {code: abs(VALUES[code] - x) for code in range(16)}
    best = [code for code in range(16) if distance[code] == min(distance.values())]
    allowed = [code for code in best if len({VALUES[c] for c in best}) == 1 or code % 2 == 0]
    assert value in [VALUES[code] for code in allowed]


@given(st.floats(-9, 9, width=32))
def test_the_table_of_borders_is_the_rounding(x: float) -> None:
    beside = torch.tensor([x, *grid.BORDERS])
    numbers = torch.cat([beside, beside.nextafter(torch.tensor(9.0)), beside.nextafter(torch.tensor(-9.0))])
    place = torch.bucketize(numbers, torch.tensor(grid.BORDERS))
    assert torch.equal(torch.tensor(grid.VALUES)[place], grid.nearest(numbers))
