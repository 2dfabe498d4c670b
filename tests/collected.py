"""The stream core's tests, collected once for all processes that are forked from this one (`tests/mutants.py`)."""

import sys
from contextlib import redirect_stdout
from io import StringIO

import pytest

from tests.mutants import QUIETLY, TESTS

with redirect_stdout(StringIO()):
    pytest.main(["--collect-only", *QUIETLY, TESTS])
del sys.modules["tests.mutants"]  # each process runs it anew, and is told when it is there already
