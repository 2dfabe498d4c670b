"""Whatever a driver, an engine's output or its last words do, the engine goes on being supervised."""

import asyncio
from pathlib import Path

import pytest

from deploy.core.errors import StartFailed
from deploy.engine.engine import Phase
from deploy.engine.spec import EngineSpec
from deploy.engine.supervised import Engine, EngineRun, RunEnd
from deploy.engine.supervisor import RestartPolicy
from tests.deploy.scripted import DONE, OK, TOKEN, scripted
from tests.deploy.test_tasks import reports
from tests.scale import PATIENCE

pytestmark = pytest.mark.asyncio


class FakeRun:
    """A run that ends when it is told to; `faults` name the methods that raise."""

    pid = 1

    def __init__(self, url: str, faults: set[str]) -> None:
        self._url, self._faults = url, faults
        self._over = asyncio.Event()

    async def address(self) -> str | None:
        self._fail("address")
        return self._url

    def up(self) -> None:
        self._fail("up")

    def terminate(self) -> None:
        self._over.set()

    def kill(self) -> None:
        self._over.set()

    async def wait(self) -> RunEnd:
        self._fail("wait")
        await self._over.wait()
        return RunEnd("it was told to")

    def close(self) -> None:
        """Nothing is held."""

    def _fail(self, name: str) -> None:
        if name in self._faults:
            self._faults.discard(name)  # once
            raise RecursionError(name)


class Driver(Engine):
    """Makes fake runs."""

    def __init__(self, base: Path, url: str, *faults: str, retry_s: float | None = None) -> None:
        spec = EngineSpec(name="annie", dialect="llama-server", driver="embedded", artefact=base / "m.gguf")
        (base / "m.gguf").touch()
        super().__init__(
            spec,
            state_dir=base,
            on_change=None,
            policy=RestartPolicy(first_pause_s=0.001, retry_s=retry_s),
            start_timeout_s=PATIENCE,
            stop_grace_s=0.1,
        )
        self._url_of_runs, self.faults, self.runs = url, set(faults), 0

    def _prepare(self) -> None:
        """Nothing to look at."""

    async def _spawn(self) -> EngineRun:
        self.runs += 1
        if "spawn" in self.faults:
            self.faults.discard("spawn")
            raise RecursionError("spawn")
        return FakeRun(self._url_of_runs, self.faults)


@pytest.mark.parametrize("fault", ["spawn", "wait"])
async def test_a_driver_that_fails_is_reported_and_tried_again(tmp_path: Path, fault: str) -> None:
    async with reports() as seen, scripted([OK, TOKEN, DONE]) as server:
        engine = Driver(tmp_path, server.url, fault)
        async with asyncio.timeout(PATIENCE):
            assert (await engine.start()).state is Phase.READY
            await engine.stop()
    assert (seen, engine.runs) == ([("engine_run", RecursionError)], 2)


@pytest.mark.parametrize("fault", ["address", "up"])
async def test_a_failure_while_it_comes_up_ends_the_run(tmp_path: Path, fault: str) -> None:
    async with reports() as seen, scripted([OK, TOKEN, DONE]) as server:
        engine = Driver(tmp_path, server.url, fault)
        async with asyncio.timeout(PATIENCE):
            with pytest.raises(StartFailed, match="its driver failed"):
                await engine.start()
            await engine.stop()
    assert seen == [("engine_ready", RecursionError)]


async def test_an_engine_that_failed_starts_again_by_itself_where_its_policy_says_so(tmp_path: Path) -> None:
    async with reports(), scripted([OK, TOKEN, DONE]) as server:
        engine = Driver(tmp_path, server.url, "address", retry_s=0.01)
        async with asyncio.timeout(PATIENCE):
            with pytest.raises(StartFailed, match="its driver failed"):
                await engine.start()
            while (seen := engine.state).state is not Phase.READY:
                await engine.changed(seen)
            assert (engine.runs, engine.state.last_error, engine.state.restarts) == (2, None, 0)
            await engine.stop()
        assert engine.state.state is Phase.STOPPED
