"""The `embedded` driver: llama.cpp's server as a child of this process, kept alive."""

import asyncio
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from deploy.core.errors import SpecError
from deploy.drivers.child import Child, StartupReport, spawn
from deploy.engine import supervisor
from deploy.engine.engine import OnChange
from deploy.engine.flags import parse_flags
from deploy.engine.log import LogFile
from deploy.engine.run import EngineRun, RunEnd
from deploy.engine.spec import EngineSpec
from deploy.engine.supervised import SupervisedEngine
from deploy.engine.weights import find_gguf


def usable_cores() -> int:
    """The number of cores that this process may run on; a child's thread count is derived from it."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return cores or 1


class EmbeddedEngine(SupervisedEngine):
    """An `Engine` that runs llama.cpp's server from the `xllamacpp` wheel; see `SupervisedEngine`.

    Raises:
        SpecError: not a spec for this driver.
        FlagError: one of `args` is not a flag of the embedded engine.
    """

    def __init__(
        self,
        spec: EngineSpec,
        *,
        state_dir: Path,
        on_change: OnChange | None = None,
        policy: supervisor.RestartPolicy | None = None,
        start_timeout_s: float = 120.0,
        stop_grace_s: float = 5.0,
        environ: Mapping[str, str] | None = None,
    ) -> None:
        if spec.driver != "embedded" or spec.artefact is None:
            raise SpecError(spec.name, "driver", f"{spec.driver!r} is not the embedded driver")
        super().__init__(
            spec,
            state_dir=state_dir,
            on_change=on_change,
            policy=policy,
            start_timeout_s=start_timeout_s,
            stop_grace_s=stop_grace_s,
        )
        self._artefact = spec.artefact
        self._settings = parse_flags(spec.name, spec.args, cores=usable_cores())
        self._environ = environ
        self._config: dict[str, Any] = {}

    def _prepare(self) -> None:
        model = str(find_gguf(self._artefact).resolve())
        self._config = {"model": model, "alias": self.name, "settings": self._settings}

    async def _spawn(self) -> EngineRun:
        log = LogFile(self._log_path)
        return _ChildRun(await spawn(self._config, log, self._environ or os.environ))

    async def describe(self) -> Mapping[str, Any]:
        """Adds the child's command line and its model file; see `Engine.describe`."""
        running = self._run
        argv = running.argv() if isinstance(running, _ChildRun) else ()
        return {**await super().describe(), "argv": argv, "model_file": self._config.get("model")}


class _ChildRun:
    """A child process as an `EngineRun`."""

    def __init__(self, child: Child) -> None:
        self._child = child

    @property
    def pid(self) -> int:
        return self._child.pid

    def argv(self) -> tuple[str, ...]:
        """The command line from the kernel; () if it is not available, or the child has ended."""
        try:
            words = Path(f"/proc/{self.pid}/cmdline").read_bytes().split(b"\0")
        except OSError:
            return ()
        return tuple(word.decode("utf-8", "replace") for word in words[:-1])

    async def address(self) -> str | None:
        # Shielded: a caller's timeout must not cancel a future that others await.
        return (await asyncio.shield(self._child.report)).url

    def up(self) -> None:
        """Nothing to do: the log withholds requests since the child reported its address."""

    def terminate(self) -> None:
        self._child.terminate()

    def kill(self) -> None:
        self._child.kill()

    async def wait(self) -> RunEnd:
        status = await self._child.wait()
        return _end_of(status, self._child.report.result() if self._child.report.done() else StartupReport())

    def close(self) -> None:
        self._child.close()


def _end_of(status: int, report: StartupReport) -> RunEnd:
    if report.error is not None:
        return RunEnd(f"refused to start: {report.error}", refused=True)
    how = f"was killed by signal {-status}" if status < 0 else f"exited with status {status}"
    when = "while serving" if report.url else "while loading"
    return RunEnd(f"{how} {when}")
