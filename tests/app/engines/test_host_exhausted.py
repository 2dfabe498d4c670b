"""What this host lacks is no engine's fault: without a descriptor, no breaker opens."""

import errno
from pathlib import Path
from typing import Any

import httpcore2
import pytest

from app.engines import backend
from app.engines.breaker import Breaker, BreakerState
from app.upstream.client import Upstream
from app.upstream.connection import unreachable
from deploy.core.engine_http import is_hosts_fault
from deploy.engine.probe import ProbeOutcome, probe
from tests.app.house import eventually, house

GONE = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)


def lacking(number: int) -> OSError:
    """As an HTTP library hands it on: in something of its own."""
    try:
        try:
            raise OSError(number, "none left")
        except OSError as error:
            raise httpcore2.ConnectError("all attempts failed") from error
    except httpcore2.ConnectError as error:
        return error  # type: ignore[return-value]  # for `raise`


@pytest.mark.parametrize("number", GONE)
async def test_a_connection_for_which_this_host_has_no_room_has_its_own_code(
    number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert unreachable(OSError(number, "none left")).code == "host_exhausted"

    async def none_left(*given: Any, **more: Any) -> Any:
        raise lacking(number)

    monkeypatch.setattr(httpcore2.AnyIOBackend, "connect_tcp", none_left)
    assert (
        await probe("http://127.0.0.1:9", model="m", deadline_s=1.0)
    ).verdict is ProbeOutcome.HOST_EXHAUSTED


@pytest.mark.parametrize("number", [errno.ECONNREFUSED, errno.EHOSTUNREACH, errno.ETIMEDOUT])
def test_what_an_engine_or_the_way_to_it_lacks_is_not_this_hosts(number: int) -> None:
    assert unreachable(OSError(number, "no")).code.startswith("connect_")
    assert not is_hosts_fault(lacking(number)) and not is_hosts_fault(None)


@pytest.mark.parametrize("state", ["closed", "suspect"])
async def test_no_breaker_opens_for_it_and_all_is_well_as_soon_as_there_is_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, state: str
) -> None:
    monkeypatch.setattr(backend, "QUIET_SECONDS", 0.0)
    monkeypatch.setattr(backend, "LOOK_SECONDS", 0.01)
    async with house(tmp_path) as home:
        (engine,) = home.gateway.pool._backends.values()
        probes = 0

        async def none_left(*given: Any, **more: Any) -> Any:
            nonlocal probes
            probes += 1
            raise lacking(errno.EMFILE)

        async def no_socket(self: Upstream, url: str) -> Any:
            raise unreachable(OSError(errno.EMFILE, "none left"))

        with monkeypatch.context() as patch:
            patch.setattr(httpcore2.AnyIOBackend, "connect_tcp", none_left)
            patch.setattr(Upstream, "_connect", no_socket)
            engine.breaker = Breaker(BreakerState(state))
            engine.upstream.close()
            for _ in range(5):
                answer = await home.ask()
                assert (answer.status, answer.json["error"]["code"]) == (503, "host_exhausted")
            await eventually(lambda: probes > 5)
            assert engine.breaker.passes
        assert (await home.ask()).text == "Hello there."
        assert (await home.metrics())("manners_engine_faults_total", engine="scripted") == 0
