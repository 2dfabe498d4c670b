"""Several processes that train together over gloo, forked from one that has imported everything."""

import multiprocessing
import os
import sys
import time
from collections.abc import Callable
from contextlib import contextmanager
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from tests.ports import free_port

CONTEXT = multiprocessing.get_context("forkserver")
CONTEXT.set_forkserver_preload(
    ["quantizer.train.run", "tests.quantizer.tiny", "tests.quantizer.folders", "torch.distributed.fsdp", "torchao.optim"]
)  # fmt: skip


def start(
    work: Callable[..., Any], *arguments: Any, count: int = 2, told: Path | None = None
) -> list[BaseProcess]:
    """Run a function in so many processes, as torchrun would start them. told: a file for what they write to stderr."""
    port = free_port()
    made: list[BaseProcess] = [CONTEXT.Process(target=_run, args=(rank, count, port, told, work, arguments)) for rank in range(count)]  # fmt: skip
    for process in made:
        process.start()
    return made


def finish(processes: list[BaseProcess], seconds: float = 600) -> list[int | None]:
    """Wait for all of them; their exit codes. What is late is killed."""
    until = time.monotonic() + seconds
    for process in processes:
        process.join(max(0.0, until - time.monotonic()))
        if process.is_alive():
            process.kill()
            process.join()
    return [process.exitcode for process in processes]


def _run(
    rank: int, count: int, port: int, told: Path | None, work: Callable[..., Any], arguments: tuple[Any, ...]
) -> None:
    os.environ.update(
        RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(count), MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port)
    )  # fmt: skip
    if told:
        sys.stderr = told.with_suffix(f".{rank}").open("w")
    import torch

    from quantizer.core import shard

    torch.set_num_threads(1)
    try:
        work(*arguments)
    finally:
        shard.leave()


@contextmanager
def alone_of_two(rank: int = 0) -> Any:
    """In a `with` block this process is one of two whose other one does not exist: collectives do nothing."""
    import torch
    from torch.testing._internal.distributed.fake_pg import FakeStore

    from quantizer.core.shard import World

    torch.distributed.init_process_group("fake", store=FakeStore(), rank=rank, world_size=2)
    try:
        yield World(rank, 2)
    finally:
        torch.distributed.destroy_process_group()
