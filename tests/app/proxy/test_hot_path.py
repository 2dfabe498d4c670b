"""A streamed chunk passes no more functions than docs/architecture.md says."""

import re
from pathlib import Path

import pytest

from tests.app.house import House
from tests.bench.calls import count

pytestmark = pytest.mark.asyncio(loop_scope="module")

PAGE = Path(__file__).parents[3] / "docs" / "architecture.md"


async def test_a_chunk_passes_no_more_functions_than_the_page_says(home: House) -> None:
    text = " ".join(PAGE.read_text("utf-8").split())
    said = re.search(r"(\d+) Python functions of (\d+) classes in (\d+) files", text)
    assert said
    calls = await count(home)
    found = calls.functions, calls.classes, calls.files
    assert all(n <= int(most) for n, most in zip(found, said.groups(), strict=True)), str(calls)
