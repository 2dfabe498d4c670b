"""Curves of a training as TensorBoard's event files, each point written at once: a thread, as its own `SummaryWriter` has, would
meet a full disk alone."""

import os
import time
from collections.abc import Mapping
from pathlib import Path

from tensorboard.compat.proto.event_pb2 import Event, SessionLog
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.summary.writer.record_writer import RecordWriter

from quantizer.core.errors import ExportError, first_line


class Curves:
    """A file in `folder`. TensorBoard shows nothing that an earlier run wrote from `step` on. Raises ExportError."""

    def __init__(self, folder: Path, step: int) -> None:
        self.path = folder / f"events.out.tfevents.{time.time():.0f}.{os.getpid()}"  # noqa: TID251  # as TensorBoard names files
        started = Event(step=step, session_log=SessionLog(status=SessionLog.START))
        self._write(Event(file_version="brain.Event:2"), started)

    def add(self, step: int, values: Mapping[str, float]) -> None:
        """A point of each curve by its name. Raises ExportError."""
        points = [Summary.Value(tag=f"train/{name}", simple_value=value) for name, value in values.items()]
        self._write(Event(step=step, summary=Summary(value=points)))

    def _write(self, *events: Event) -> None:
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with self.path.open("ab") as file:
                for event in events:
                    event.wall_time = time.time()  # noqa: TID251  # what TensorBoard shows
                    RecordWriter(file).write(event.SerializeToString())
        except OSError as error:
            raise ExportError(f"{self.path}: cannot be written ({first_line(error)})") from None
