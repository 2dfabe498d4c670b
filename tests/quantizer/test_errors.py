"""A foreign error becomes one line, whatever it says."""

import pytest

from quantizer.core.errors import first_line


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (ValueError("cut off\nat byte 3"), "cut off"),
        (RuntimeError("\nCUDA error"), "CUDA error"),
        (ValueError(), "ValueError"),
        (RuntimeError("\n"), "RuntimeError"),
        (OSError(28, "No space left on device", "/x"), "No space left on device"),
        (OSError("no tokenizer.json"), "no tokenizer.json"),
    ],
)
def test_the_first_line_of_an_error(error: Exception, line: str) -> None:
    assert first_line(error) == line
