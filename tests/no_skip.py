"""A pytest plugin for CI: there, a skip is a failure (`-p tests.no_skip`).

But for one whose reason has the words of ALLOW_SKIP in it: what a stranger lacks, and a later step has.
"""

import os
from collections.abc import Generator
from typing import Any

import pytest

ALLOWED = os.environ.get("ALLOW_SKIP")


def _refused(report: Any) -> bool:
    return report.skipped and not (ALLOWED and ALLOWED in str(report.longrepr))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Generator[None, Any, Any]:
    """Turn a skip into a failure that says why."""
    report = yield
    if _refused(report) and not hasattr(report, "wasxfail"):
        report.outcome = "failed"
        report.longrepr = f"skipped in CI: {report.longrepr}"
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(collector: pytest.Collector) -> Generator[None, Any, Any]:
    """The same for a module that skips itself while it is collected."""
    report = yield
    if _refused(report):
        report.outcome = "failed"
        report.longrepr = f"skipped in CI: {report.longrepr}"
    return report
