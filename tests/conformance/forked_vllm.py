"""vLLM's server on a CPU, in less work: its processes are forked, and they sleep while they wait for each other.

On a GPU vLLM forks its engine and its worker. On a CPU it spawns them, for the sake of thread pinning that is switched
off here (`VLLM_CPU_OMP_THREADS_BIND=nobind`), and each of the three processes imports vLLM anew: a start takes twice as
long. A process that waits for another polls shared memory for a second without a pause; on two cores that takes CPU time
from the process it waits for. Run by the interpreter of `.venv-vllm`; it takes the arguments of
`vllm.entrypoints.openai.api_server`.
"""

import os
import runpy
import time
from typing import Any

NAP = 0.0005
"""Seconds between two looks at shared memory."""


def fork(platform: Any) -> None:
    """Let this platform say `fork` once it has said all that it says of its processes."""
    spawning = platform.check_and_update_config.__func__

    def forking(cls: Any, config: Any) -> None:
        spawning(cls, config)
        os.environ["VLLM_WORKER_MULTIPROC_METHOD"] = "fork"

    platform.check_and_update_config = classmethod(forking)


def nap() -> None:
    """Stands in for vLLM's `sched_yield`, which lets others run but comes back at once if there are none."""
    time.sleep(NAP)


if __name__ == "__main__":
    from vllm.distributed.device_communicators import shm_broadcast
    from vllm.platforms.cpu import CpuPlatform

    fork(CpuPlatform)
    shm_broadcast.sched_yield = nap
    runpy.run_module("vllm.entrypoints.openai.api_server", run_name="__main__")
