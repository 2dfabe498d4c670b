"""Schemathesis's own command over both OpenAPI documents, with all its checks but one, and one of ours."""

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from tests.app.house import TOKEN, GatewayFixture, eventually, house
from tests.scale import PATIENCE, scaled

pytestmark = [pytest.mark.reliability, pytest.mark.timeout(600), pytest.mark.asyncio(loop_scope="module")]

ROOT = Path(__file__).parents[2]
KEY = "key-of-a-caller"
DOCUMENTS = {"public": ("/openapi.json", KEY), "admin": ("/admin/openapi.json", TOKEN)}
EXAMPLES = scaled(4, 100)
"""For each operation."""
EXCLUDED = "positive_data_acceptance,not_a_server_error"
"""Fields that depend on each other, and those that are declared only to be refused by name (docs/outside-tools.md); and what
the scripted engine fails at, which is 502, as `is_answered` says."""


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def home(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[GatewayFixture]:
    async with house(tmp_path_factory.mktemp("state"), keys=(KEY,)) as it:
        yield it


@pytest.mark.parametrize("listener", DOCUMENTS)
async def test_every_operation_of_a_document_answers_whatever_is_sent(
    home: GatewayFixture, listener: str, tmp_path: Path
) -> None:
    path, key = DOCUMENTS[listener]
    url = home.url if listener == "public" else home.admin
    tool = await asyncio.create_subprocess_exec(
        Path(sys.executable).with_name("st"), "run", url + path, "--header", f"Authorization: Bearer {key}", "--seed", "1",
        "--max-examples", str(EXAMPLES), "--checks", "all", "--exclude-checks", EXCLUDED, "--generation-database", "none",
        "--no-color", "--request-timeout", str(PATIENCE), cwd=tmp_path, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
        env={**os.environ, "SCHEMATHESIS_HOOKS": "tests.reliability.envelopes", "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    told = (await tool.communicate())[0].decode()
    assert tool.returncode == 0, told
    assert not [line for line in home.log.lines if line["level"] == "error"]
    await eventually(home.is_quiet)  # a place is free a moment after the last byte


async def test_the_operators_document_is_for_operators(home: GatewayFixture) -> None:
    assert (await home.get(home.admin + "/admin/openapi.json")).status == 401
    assert (await home.get(home.url + "/admin/openapi.json")).status == 404
