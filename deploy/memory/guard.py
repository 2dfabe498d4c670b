"""The guard of the host's memory: estimates an engine's need, admits or refuses it, and kills it before the host hangs.

A thread checks four times a second, because memory can fall by 22 GiB in eleven seconds (vllm#56824), and the
event loop may not run when memory is short. It kills only the engine that it watches, the candidate.
"""

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from deploy.core.gguf import read_metadata
from deploy.engine.dialects import DIALECTS
from deploy.engine.gpu import host_gpu
from deploy.engine.spec import EngineSpec
from deploy.engine.supervised import Engine
from deploy.engine.weights import find_gguf, find_model, find_projector
from deploy.memory.sizing import (
    GIB,
    EngineLoad,
    Memory,
    Shortage,
    Watch,
    admit,
    came_back,
    context_length,
    engine_need,
    has_own_memory,
    kv_values,
    read_memory,
)

WEIGHTS = (".safetensors", ".gguf", ".bin", ".pt")
LOOK_SECONDS = 0.25
BACK_SECONDS = 20.0
"""How long the kernel and the driver may take to free an engine's memory."""


class Guard:
    """Checks memory before, during and after an engine's start; without /proc/meminfo it admits every engine.

    `own_memory`: the GPU has memory of its own, which is not checked here.
    """

    def __init__(
        self,
        read: Callable[[], Memory] = read_memory,
        *,
        every_s: float = LOOK_SECONDS,
        own_memory: bool | None = None,
    ) -> None:
        self._read = read
        self._every_s = every_s
        self._own_memory = has_own_memory(host_gpu()) if own_memory is None else own_memory

    def memory(self) -> Memory | None:
        """The host's memory; None if it is unknown."""
        try:
            return self._read()
        except (OSError, ValueError):
            return None

    def need(self, spec: EngineSpec) -> int:
        """Bytes of host memory that an engine will need; 0 for the url driver. Raises WeightsError."""
        if spec.driver == "url":
            return 0
        memory, gguf = self.memory(), DIALECTS[spec.dialect].gguf and spec.artefact is not None
        metadata = read_metadata(find_model(spec)) if gguf else {}
        return engine_need(
            EngineLoad(
                dialect=spec.dialect,
                driver=spec.driver,
                weights=weights_of(spec),
                total=memory.total if memory else 0,
                args=spec.args,
                env=dict(spec.env or ()),
                kv_values=kv_values(metadata),
                context=context_length(metadata),
                cpu=spec.gpu == "none",
                own_memory=self._own_memory,
            )
        )

    def admit(self, spec: EngineSpec) -> Shortage | None:
        """None if there is enough memory for an engine. Raises WeightsError as `need` does."""
        memory = self.memory()
        return None if memory is None else admit(self.need(spec), memory)

    @contextmanager
    def watching(self, candidate: Engine) -> Iterator[None]:
        """While the context lasts, kill the candidate as soon as the host is short of memory; its `start()` then raises StartFailed."""
        over = threading.Event()
        thread = threading.Thread(
            target=self._watch, args=(candidate, over), name=f"memory of {candidate.name}", daemon=True
        )
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()

    def _watch(self, candidate: Engine, over: threading.Event) -> None:
        watch: Watch | None = None
        while not over.wait(self._every_s):
            memory = self.memory()
            if memory is None:
                return
            watch = (watch or Watch(memory.floor, memory.hard_floor)).look(memory.available)
            if watch.is_over:
                candidate.kill(
                    f"memory_floor: {memory.available / GIB:.2f} GiB were available,"
                    f" and {memory.floor / GIB:.2f} GiB have to be"
                )

    async def wait_back(self, before: Memory | None, deadline_s: float = BACK_SECONDS) -> bool:
        """After a stop, wait until as much memory is available as before the start; False: another process took it, or a dead one holds it."""
        end = time.monotonic() + deadline_s
        while before is not None and (now := self.memory()) is not None:
            if came_back(before, now):
                return True
            if time.monotonic() >= end:
                return False
            await asyncio.sleep(self._every_s)
        return True


def weights_of(spec: EngineSpec) -> int:
    """Bytes of an engine's weights on disk; 0 without an artefact. Raises WeightsError."""
    if spec.artefact is None:
        return 0
    if DIALECTS[spec.dialect].gguf:
        files = [find_gguf(spec.artefact), find_projector(spec.artefact)]
    else:
        found = [spec.artefact] if spec.artefact.is_file() else spec.artefact.glob("*")
        files = [path for path in found if path.suffix in WEIGHTS and path.is_file()]
    return sum(path.stat().st_size for path in files if path is not None)
