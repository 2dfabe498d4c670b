"""The `embedded` driver: llama.cpp's server as a child of this process, kept alive."""

import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Unpack

from deploy.drivers.child import Child, child_environment, spawn
from deploy.engine.flags import parse_flags
from deploy.engine.log import LogFile
from deploy.engine.spec import EngineSpec
from deploy.engine.supervised import Engine, EngineRun, Supervision
from deploy.engine.weights import find_gguf, find_projector


def usable_cores() -> int:
    """The number of cores that this process may run on; a child's thread count is derived from it."""
    return len(os.sched_getaffinity(0))


async def spawn_llama(config: Mapping[str, Any], log: LogFile, environ: Mapping[str, str]) -> Child:
    """Start `deploy.drivers.llama_child`. Raises OSError: nothing is left behind."""
    text = json.dumps(config)
    log.note(text)
    program = (sys.executable, "-m", "deploy.drivers.llama_child")
    return await spawn(program, ("--config", text), log, child_environment(environ), Child)


class EmbeddedEngine(Engine):
    """An `Engine` that runs llama.cpp's server from the `xllamacpp` wheel. Raises FlagError."""

    def __init__(
        self,
        spec: EngineSpec,
        *,
        state_dir: Path,
        environ: Mapping[str, str] | None = None,
        **how: Unpack[Supervision],
    ) -> None:
        assert spec.artefact is not None  # of every spec for this driver
        super().__init__(spec, state_dir=state_dir, **how)
        self._artefact = spec.artefact
        self._settings = parse_flags(spec.name, spec.args, cores=usable_cores())
        self._environ = environ
        self._config: dict[str, Any] = {}

    def _prepare(self) -> None:
        model = str(find_gguf(self._artefact).resolve())
        self._config = {"model": model, "alias": self.name, "settings": self._settings}
        if (projector := find_projector(self._artefact)) is not None:
            self._config["projector"] = str(projector.resolve())

    async def _spawn(self) -> EngineRun:
        log = self._begin_log()
        return await spawn_llama(self._config, log, self._environ or os.environ)

    async def describe(self) -> Mapping[str, Any]:
        """Adds the child's command line and its model file; see `Engine.describe`."""
        running = self._run
        argv = running.argv() if isinstance(running, Child) else ()
        return {**await super().describe(), "argv": argv, "model_file": self._config.get("model")}
