"""Every engine is heard to do the same, row by row; `docs/engines.md` says so and is up to date."""

import os
from collections.abc import AsyncIterator

import httpx2
import pytest
import pytest_asyncio

from app.conformance.checks import CANCEL
from app.conformance.suite import NEVER_BEGAN, CheckOutcome, ConformanceSession, open_session, run_cancel
from app.conformance.suite import results as suite_results
from tests.conformance import report
from tests.conformance.engines import Engine
from tests.conformance.known import KNOWN
from tests.conformance.report import Column
from tests.conformance.versions import version as version_of

pytestmark = [pytest.mark.engine, pytest.mark.asyncio(loop_scope="session"), pytest.mark.timeout(480)]


@pytest_asyncio.fixture(loop_scope="session", scope="session")
async def column(engine: Engine) -> AsyncIterator[Column]:
    """All rows of one engine."""
    async with open_session(engine.url, engine.kind.dialect) as it:
        print(f"\n{engine.kind.title} can do: {it.state.abilities}")
        results = [await _again(it, result) async for result in suite_results(it)]
    async with httpx2.AsyncClient(timeout=None) as client:
        version = await version_of(client, engine.url, engine.kind.dialect)
    known = KNOWN.get(engine.kind.name, {})
    told = tuple(
        r if r.right or r.name not in known else type(r)(r.name, False, known[r.name]) for r in results
    )
    print(f"\n{engine.kind.title}, {version}\n{report.plain(results)}")
    kept = Column(engine.kind.name, version, told)
    if os.environ.get("CONFORMANCE_WRITE"):
        report.save(kept)
    yield kept


async def _again(it: ConformanceSession, result: CheckOutcome) -> CheckOutcome:
    """The result; of an engine that did not begin at all, a second one."""
    if result.name == CANCEL and result.why.startswith(NEVER_BEGAN):
        print(result.why)
        return await run_cancel(it)
    return result


@pytest.mark.parametrize("name", report.CHECK_NAMES)
async def test_an_engine_is_heard_to_do_what_every_engine_does(
    engine: Engine, column: Column, name: str
) -> None:
    result, reason = column.of(name), KNOWN.get(engine.kind.name, {}).get(name)
    assert result is not None, f"the row {name!r} was not run"
    if reason is not None:
        assert not result.right, f"{name!r} is right now: strike it from tests/conformance/known.py"
        pytest.xfail(reason)
    assert result.right, result.why


async def test_the_document_shows_this_engine_as_it_is(engine: Engine, column: Column) -> None:
    kept = report.load().get(engine.kind.name)
    assert kept is not None, "not in the document yet: run again with CONFORMANCE_WRITE=1"
    assert kept.results == column.results, "the document is old: run again with CONFORMANCE_WRITE=1"


async def test_the_document_is_made_from_the_results_that_are_kept() -> None:
    document = report.DOCUMENT.read_text("utf-8")
    assert document == report.written(document, report.load())
