"""Whether a kernel of ours is used: on a CUDA GPU for which Triton compiles it, if its numbers are right there."""

import warnings
from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from subprocess import SubprocessError
from typing import Any, Final, TypeVar

import torch

Form = TypeVar("Form", bound=Callable[..., Any])
FAILURES: Final = (RuntimeError, OSError, ImportError, SubprocessError)
"""Of the driver, or of the C compiler that Triton calls, beside Triton's own."""


def best(
    device: torch.device, module: str, name: str, plain: Form, agrees: Callable[[Form, torch.device], bool]
) -> Form:
    """The function `name` of a module of kernels; else `plain`, torch's, with a warning if Triton is there. Asked once a device."""
    if device.type != "cuda" or not find_spec("triton"):
        return plain
    from triton.errors import TritonError

    try:
        kernel: Form = getattr(import_module(module), name)
        if agrees(kernel, device):
            return kernel
        why = "it computes otherwise here"
    except (TritonError, *FAILURES) as error:
        why = str(error)
    warnings.warn(f"{module}: torch is used instead of Triton's kernel: {why}", stacklevel=2)
    return plain
