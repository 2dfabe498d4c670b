"""What all targets import, instrumented once for the processes that are forked from this one: most of a short run's time."""

from contextlib import redirect_stderr
from io import StringIO

import atheris

from tests.fuzz.worker import SUBJECTS

with redirect_stderr(StringIO()), atheris.instrument_imports(include=SUBJECTS):  # it names each
    import tests.fuzz.targets  # noqa: F401
