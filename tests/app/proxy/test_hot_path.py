"""The hot path: a chunk passes no more functions, a request makes no more calls, than docs/architecture.md says."""

import re
from pathlib import Path

import pytest

from tests.app.house import GatewayFixture
from tests.bench.calls import count, count_request

pytestmark = pytest.mark.asyncio(loop_scope="module")

PAGE = Path(__file__).parents[3] / "docs" / "architecture.md"


def stated(pattern: str) -> re.Match[str]:
    """What the page says."""
    found = re.search(pattern, " ".join(PAGE.read_text("utf-8").split()))
    assert found, pattern
    return found


async def test_a_chunk_passes_no_more_functions_than_the_page_says(home: GatewayFixture) -> None:
    said = stated(r"(\d+) Python functions of (\d+) classes in (\d+) files")
    calls = await count(home)
    found = calls.functions, calls.classes, calls.files
    assert all(n <= int(most) for n, most in zip(found, said.groups(), strict=True)), str(calls)


async def test_a_request_makes_no_more_calls_than_the_page_says(home: GatewayFixture) -> None:
    calls = await count_request(home)
    said = stated(r"at most (\d+) calls of Python functions of ours, (\d+) of them until the engine is asked")
    found = len(calls.made), calls.until_asked
    within = all(n <= int(most) for n, most in zip(found, said.groups(), strict=True))
    assert within, f"{found}; what to do: docs/architecture.md, `python -m tests.bench.calls`"
