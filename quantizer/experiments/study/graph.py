"""Run work that is repeated on the same tensors as a CUDA graph.

A nano model is so small that launching its thousand kernels takes several times as long as running them. A graph
launches them all at once. The first call runs eagerly on a separate stream, the second is recorded, and later calls
replay the recording. Without a GPU, or if recording fails, every call runs eagerly: slower, with the same results.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import torch

Work = Callable[[], Any]


class Graphs:
    """The graphs of pieces of work that never run at the same time; they share memory. on: false never records."""

    failed = False  # per process: if one recording fails, others would too

    def __init__(self, device: str, on: bool = True) -> None:
        self.on = on and device.startswith("cuda")
        self.pool = torch.cuda.graph_pool_handle() if self.on else None

    def made_of(self, work: Work) -> Work:
        """The work as a graph. Call it only while nothing runs on other streams of the device."""
        return _Graph(self, work) if self.on else work


class _Graph:
    def __init__(self, graphs: Graphs, work: Work) -> None:
        self.graphs, self.work, self.calls = graphs, work, 0
        self.graph: torch.cuda.CUDAGraph | None = None

    def __call__(self) -> None:
        self.calls += 1
        if self.calls == 1 and not Graphs.failed:
            return self._aside()
        if self.graph is None and not Graphs.failed:
            self._record()
        if self.graph is not None:
            self.graph.replay()
        else:
            self.work()

    def _aside(self) -> None:
        """Run once on a separate stream, so that everything that is created in a first run exists."""
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            self.work()
        torch.cuda.current_stream().wait_stream(stream)

    def _record(self) -> None:
        graph = torch.cuda.CUDAGraph()
        try:
            with torch.cuda.graph(graph, pool=self.graphs.pool):
                self.work()
        except RuntimeError as error:
            Graphs.failed = True
            torch.cuda.synchronize()
            print(f"no CUDA graph: {error}", file=sys.stderr, flush=True)
            return
        self.graph = graph
