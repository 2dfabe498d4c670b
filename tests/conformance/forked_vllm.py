"""vLLM's server on a CPU, with processes that it forks and that sleep while they wait: a start takes half of the time.

vLLM forks its engine and its worker, and so it does on a GPU; on a CPU it spawns them, for the sake of thread pinning
that is switched off here (`VLLM_CPU_OMP_THREADS_BIND=nobind`), and each of the three processes imports vLLM anew. And
one that waits for another looks at shared memory for a second without a pause, which on two cores takes the time of
what it waits for. Run by the interpreter of `.venv-vllm`; it takes the arguments of
`vllm.entrypoints.openai.api_server`.
"""

import os
import runpy
import time
from typing import Any

NAP = 0.0005
"""Seconds."""


def fork(platform: Any) -> None:
    """Let this platform say `fork` once it has said all that it says of its processes."""
    spawning = platform.check_and_update_config.__func__

    def forking(cls: Any, config: Any) -> None:
        spawning(cls, config)
        os.environ["VLLM_WORKER_MULTIPROC_METHOD"] = "fork"

    platform.check_and_update_config = classmethod(forking)


def nap() -> None:
    """What a process does between two looks at shared memory, where vLLM's own only lets another one run."""
    time.sleep(NAP)


if __name__ == "__main__":
    from vllm.distributed.device_communicators import shm_broadcast
    from vllm.platforms.cpu import CpuPlatform

    fork(CpuPlatform)
    shm_broadcast.sched_yield = nap
    runpy.run_module("vllm.entrypoints.openai.api_server", run_name="__main__")
