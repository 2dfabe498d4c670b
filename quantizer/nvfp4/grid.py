"""E2M1, the four-bit float of NVFP4: eight magnitudes and a sign; two codes make a byte.

  code bits 0-2   0    1    2    3    4    5    6    7
  magnitude       0   0.5   1   1.5   2    3    4    6          bit 3 is the sign

A number is rounded to the nearest magnitude. Halfway between two, it goes to the one with the even code, as in IEEE
754: 0.25, 1.25, 2.5 and 5 are rounded down, 0.75, 1.75 and 3.5 up. Numbers beyond 6 become 6. A negative number
keeps its sign when it is rounded to zero (code 8); minus zero itself counts as zero.

Sources: OCP Microscaling Formats (MX) v1.0, section 5.3.3 (the values); ModelOpt 0.47,
quantization/qtensor/nvfp4_tensor.py, `_cast_fp4` (ties, signs and the order of the two codes in a byte). The
rounding is implemented once, in `_magnitude`; values and codes are derived from it.
"""

from itertools import pairwise, starmap
from typing import Final

import torch
from torch import Tensor

MAGNITUDES: Final = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)
VALUES: Final = tuple(sorted({sign * size for sign in (-1.0, 1.0) for size in MAGNITUDES}))
"""What a code can say, in order."""
E2M1_MAX: Final = 6.0
EXPONENT: Final = 0x7F800000  # mask of a float32's exponent bits
ROUNDS_TO_ONE: Final = 1.5 * 2**23  # around it, neighbouring float32 numbers differ by 1


def nearest(x: Tensor) -> Tensor:
    """The nearest E2M1 value of each number: float32 [...]. NaN stays NaN."""
    # Adding zero turns minus zero into zero, and leaves every other number as it is.
    return _magnitude(x).copysign_(x.float() + 0.0)


def encode(x: Tensor) -> Tensor:
    """The code of the nearest value: float [...] to uint8 [...], 0 to 15. The input must be finite."""
    size = _magnitude(x)
    # A code is 0.5 apart from the next, from 2 on 1, from 4 on 2: the minimum of three lines.
    code = torch.minimum(torch.minimum(size * 2, size + 2), size / 2 + 4)
    return code.to(torch.uint8) | ((x < 0).to(torch.uint8) << 3)


def _magnitude(x: Tensor) -> Tensor:
    """The nearest magnitude to the absolute value of each number, as a new tensor: float32 [...].

    The spacing of the magnitudes around a number follows from its exponent: half of its power of two, and 0.5 below
    2. Magnitudes with an even code are even multiples of the spacing. Adding a constant at which float32 numbers
    have the same spacing rounds to one of them, ties to even; subtracting the constant again is exact.
    """
    size = x.float().abs().clamp_(max=E2M1_MAX)
    power = (size.view(torch.int32) & EXPONENT).view(torch.float32)
    far = power.clamp_(min=1.0).mul_(0.5 * ROUNDS_TO_ONE)
    return size.add_(far).sub_(far)


def _border(low: float, high: float) -> float:
    """The largest float32 number that goes to the lower one of two neighbouring values."""
    middle = torch.tensor((low + high) / 2)
    down = float(nearest(middle)) == low
    return float(middle if down else middle.nextafter(torch.tensor(low)))


BORDERS: Final = tuple(starmap(_border, pairwise(VALUES)))
"""`nearest` as a table, for where comparing is what there is: a finite number goes to VALUES[count of borders below it]."""


def decode(codes: Tensor) -> Tensor:
    """The value of each code: uint8 [...], 0 to 15, to float32 [...]."""
    table = torch.tensor([sign * size for sign in (1.0, -1.0) for size in MAGNITUDES], device=codes.device)
    return table.index_select(0, codes.flatten().int()).view(codes.shape)


def pack(codes: Tensor) -> Tensor:
    """Two codes in a byte: uint8 [..., n] to uint8 [..., n / 2]; the even column is the low nibble."""
    if codes.shape[-1] % 2:
        raise ValueError(f"a row of {codes.shape[-1]} codes does not fill its last byte")
    return codes[..., 0::2] | (codes[..., 1::2] << 4)


def unpack(packed: Tensor) -> Tensor:
    """Bytes to codes: uint8 [..., n / 2] to uint8 [..., n]."""
    return torch.stack((packed & 0x0F, packed >> 4), dim=-1).flatten(-2)
