"""What the quantizer's tests share."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

if not Path("/dev/nvidiactl").exists():
    # Before anything imports Triton, which reads it then: kernels are interpreted where there is no GPU.
    os.environ.setdefault("TRITON_INTERPRET", "1")


@pytest.fixture(scope="module")
def one_thread() -> Iterator[None]:
    """Matrices of 64 columns are too small to be worth a second thread, least of all on a busy machine."""
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)
