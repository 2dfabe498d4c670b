"""The suite in force, read once: like the configuration that names it, it is read again at the next start.

To check the cases of one takes a second of computing, which callers would hear if it were taken from
them with every promotion.
"""

from functools import cache

from gates.contracts.case import Suite
from gates.suite.load import load_suite


@cache
def suite_in_force(name_or_path: str) -> Suite:
    """A suite by its name or the path of its file. Raises SuiteError, OSError; that is not kept."""
    return load_suite(name_or_path)
