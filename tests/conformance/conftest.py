"""Which engines the suite runs over: llama.cpp in `make test`, vLLM in `make test-vllm` and `make test-gpu`, SGLang in `make test-sglang`.

`CONFORMANCE` names kinds of `engines.KINDS` (comma-separated), or all of one family: llama, vllm, sglang, gpu.
With `CONFORMANCE_WRITE=1` the results are kept and `docs/engines.md` is written anew; with
`CONFORMANCE_RECORD=1` each engine's golden streams are recorded before it is stopped.
"""

import os
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
import pytest_asyncio
import uvloop

from tests.conformance.engines import COLUMNS, KINDS, SGLANG, Engine, Install, serving
from tests.conformance.record import record

FULL = ("llama-hermes", "vllm-hermes", "gpu-hermes")
"""Where the cancels are done: parsers and templates make no difference to them."""


def chosen() -> list[str]:
    """The kinds of this run."""
    words = os.environ.get("CONFORMANCE", "llama").split(",")
    families = {name for name in COLUMNS if name.partition("-")[0] in words}
    return [name for name in KINDS if name in words or name in families]


def installs() -> list[Install]:
    """The vLLMs of this run."""
    found = {one.target: one for name in chosen() if (one := KINDS[name].install) and one is not SGLANG}
    return list(found.values())


collect_ignore = ["test_golden.py"] if installs() else ["test_flags.py"]
"""What was recorded needs no engine: `make test` has it."""


def pytest_asyncio_loop_factories(config: pytest.Config, item: pytest.Item) -> dict[str, Callable[[], Any]]:
    """The loop that `manners serve` runs on."""
    return {"uvloop": uvloop.new_event_loop}


@pytest_asyncio.fixture(loop_scope="session", scope="session", params=chosen())
async def engine(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Engine]:
    """One real engine after another, each up for all tests that want it."""
    kind = KINDS[request.param]
    if kind.missing:
        pytest.skip(kind.missing)
    async with serving(kind, tmp_path_factory.mktemp(kind.name)) as it:
        yield it
        if os.environ.get("CONFORMANCE_RECORD"):
            await record(it)
