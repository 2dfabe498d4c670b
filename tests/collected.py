"""The stream core's tests, collected once for all processes that are forked from this one (`tests/mutants.py`).

Its tags are compiled here, too, which takes longer than most tests: a process imports the core anew, but finds their
patterns in the cache of `re`.
"""

import sys
from contextlib import redirect_stdout
from io import StringIO

import pytest

from app.stream.tags import ALL_CALL_FAMILIES, ALL_FAMILIES, tag_set
from tests.mutants import QUIETLY, TESTS

with redirect_stdout(StringIO()):
    pytest.main(["--collect-only", *QUIETLY, TESTS])
for families in (ALL_FAMILIES, ()):
    for calls in (ALL_CALL_FAMILIES, ()):
        tag_set(families, calls)
del sys.modules["tests.mutants"]  # each process runs it anew, and is told when it is there already
