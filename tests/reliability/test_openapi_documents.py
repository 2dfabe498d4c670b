"""Schemathesis over both OpenAPI documents: whatever is sent, the gateway has an answer in its envelope."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis import GenerationMode
from schemathesis.core.result import Ok

from tests.app.house import TOKEN, House, house
from tests.scale import PATIENCE

pytestmark = [pytest.mark.reliability, pytest.mark.timeout(600), pytest.mark.asyncio(loop_scope="module")]

KEY = "key-of-a-caller"
DOCUMENTS = {"public": ("/openapi.json", KEY), "admin": ("/admin/openapi.json", TOKEN)}
EXAMPLES = 4
"""Of each kind, for each operation."""


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def home(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[House]:
    async with house(tmp_path_factory.mktemp("state"), keys=(KEY,)) as it:
        yield it


def is_answered(case: Any, response: Any) -> None:
    """Never a 500; an error is an envelope; a 502 is the engine's and says so."""
    told = f"{case.method} {case.formatted_path}: {response.status_code} {response.content[:300]!r}"
    assert response.status_code < 500 or response.status_code in (502, 503), told
    if response.status_code < 400 or case.method == "HEAD":
        return
    error = json.loads(response.content).get("error")
    assert error, told
    assert error["message"] and error["type"], told
    assert response.status_code < 500 or error["type"] in ("upstream_error", "api_error", "server_error"), (
        told
    )
    assert "x-request-id" in response.headers, told


def ask_everything(document: Any, url: str, key: str) -> int:
    """Right and wrong requests to every operation, in a thread of their own; how many."""
    asked = 0
    headers = {"Authorization": f"Bearer {key}"}
    for found in schemathesis.openapi.from_dict(document).get_all_operations():
        assert isinstance(found, Ok)
        operation = found.ok()
        for mode in GenerationMode.POSITIVE, GenerationMode.NEGATIVE:

            @settings(
                max_examples=EXAMPLES,
                derandomize=True,
                database=None,
                deadline=None,
                phases=(Phase.generate,),
                suppress_health_check=list(HealthCheck),
            )
            @given(operation.as_strategy(generation_mode=mode))
            def ask(case: Any) -> None:
                nonlocal asked
                asked += 1
                is_answered(case, case.call(base_url=url, headers=headers, timeout=PATIENCE))

            try:
                ask()
            except schemathesis.errors.InvalidSchema:
                raise
            except Exception as error:
                if type(error).__name__ not in ("Unsatisfiable", "SkipTest", "Skipped"):
                    raise  # an operation without parameters has no wrong request
    return asked


@pytest.mark.parametrize("listener", DOCUMENTS)
async def test_every_operation_of_a_document_answers_whatever_is_sent(home: House, listener: str) -> None:
    path, key = DOCUMENTS[listener]
    url = home.url if listener == "public" else home.admin
    answer = await home.get(url + path, {"authorization": f"Bearer {key}"})
    document = answer.json
    assert len(document["paths"]) > 5
    asked = await asyncio.to_thread(ask_everything, document, url, key)
    assert asked > 3 * len(document["paths"])
    assert not [line for line in home.log.lines if line["level"] == "error"]
    assert home.is_quiet()


async def test_the_operators_document_is_for_operators(home: House) -> None:
    assert (await home.get(home.admin + "/admin/openapi.json")).status == 401
    assert (await home.get(home.url + "/admin/openapi.json")).status == 404
