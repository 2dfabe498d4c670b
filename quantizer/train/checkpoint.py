"""Checkpoints of a run, beside the place of its result: NAME.training/step-00000200/rank-0.pt

A checkpoint is written whole into a folder of another name and gets its own by rename, when it is on the disk; then the
one before it goes. So a kill at any moment leaves one that is whole. `run.json` says what run they are of, and another
run is refused. torch.load reads tensors and plain values only, so a checkpoint cannot run code.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import torch

from quantizer.core.errors import CheckpointError
from quantizer.train.shard import World

FORMAT: Final = 1
_RUN: Final = "run.json"


class Checkpoints:
    """The checkpoints of one run. about: all that makes it this run and no other, as JSON values."""

    def __init__(self, folder: Path, about: Mapping[str, Any], world: World | None = None) -> None:
        self.folder, self.about, self.world = folder, {"format": FORMAT, **about}, world or World()

    @property
    def digest(self) -> str:
        text = json.dumps(self.about, sort_keys=True, ensure_ascii=False)
        return f"sha256:{hashlib.sha256(text.encode()).hexdigest()}"

    def begin(self, resume: bool) -> dict[str, Any] | None:
        """The state to go on from, or None for a run that begins.

        Raises CheckpointError: there are checkpoints and nobody asked to go on, they are another run's, or damaged.
        """
        if not self.folder.exists():
            return None
        if not resume:
            raise CheckpointError(
                f"{self.folder}: checkpoints of a run that did not end; --resume goes on, or remove the folder"
            )
        newest = self._newest()
        if newest is None:  # killed before the first was whole
            return None
        self._check_run()
        return self._load(newest / f"rank-{self.world.rank}.pt")

    def save(self, state: Mapping[str, Any]) -> None:
        """Bring a state to the disk. Raises CheckpointError if the disk refuses; those before are safe."""
        name = f"step-{state['step']:08}"
        draft, place = self.folder / f"{name}.unfinished", self.folder / name
        try:
            if self.world.rank == 0:
                self._make(draft)
            self.world.wait()
            self._write(draft / f"rank-{self.world.rank}.pt", state)
            self.world.wait()
            if self.world.rank == 0:
                draft.rename(place)
                _sync(self.folder)
                self._remove_before(place)
        except (OSError, RuntimeError) as error:  # torch.save tells a full disk as RuntimeError
            shutil.rmtree(draft, ignore_errors=True)
            (self.folder / f"{_RUN}.unfinished").unlink(missing_ok=True)
            told = getattr(error, "strerror", None) or str(error).splitlines()[0]
            raise CheckpointError(
                f"{place}: cannot be written ({told}); make room and go on with --resume"
            ) from error

    def remove(self) -> None:
        """The run is over."""
        self.world.wait()
        if self.world.rank == 0:
            shutil.rmtree(self.folder, ignore_errors=True)

    def _make(self, draft: Path) -> None:
        """An empty folder to write in, and around it, the first time, the one that says what run this is."""
        if not (self.folder / _RUN).exists():
            self.folder.mkdir(parents=True, exist_ok=True)
            text = json.dumps({"digest": self.digest, **self.about}, indent=2, ensure_ascii=False)
            (self.folder / f"{_RUN}.unfinished").write_text(text + "\n", encoding="utf-8")
            (self.folder / f"{_RUN}.unfinished").rename(self.folder / _RUN)
        shutil.rmtree(draft, ignore_errors=True)
        draft.mkdir()

    def _check_run(self) -> None:
        try:
            there = json.loads((self.folder / _RUN).read_text("utf-8"))
            known = dict(there)
        except (OSError, ValueError, TypeError):
            raise CheckpointError(
                f"{self.folder / _RUN}: cannot be read; remove the folder to begin again"
            ) from None
        if known.pop("digest", None) == self.digest:
            return
        other = [key for key in {*known, *self.about} if known.get(key) != self.about.get(key)]
        raise CheckpointError(
            f"{self.folder}: is of another run ({', '.join(sorted(other)) or 'edited'} differ); remove it to begin again"
        )

    def _newest(self) -> Path | None:
        names = [path for path in self.folder.glob("step-*") if path.suffix != ".unfinished"]
        return max(names, default=None)

    def _load(self, path: Path) -> dict[str, Any]:
        try:
            state = torch.load(
                path, map_location="cpu", weights_only=True, mmap=True
            )  # a GPU's memory may be the host's
        except Exception as error:  # whatever a damaged file makes of an unpickler
            told = str(error).splitlines()[0] if str(error) else type(error).__name__
            raise CheckpointError(
                f"{path}: is damaged ({told:.80}); remove the folder to begin again"
            ) from None
        if not isinstance(state, dict) or state.get("run") != self.digest:
            raise CheckpointError(f"{path}: is of another run; remove the folder to begin again")
        return state

    def _write(self, path: Path, state: Mapping[str, Any]) -> None:
        with path.open("wb") as file:
            torch.save({**state, "run": self.digest}, file)
            file.flush()
            os.fsync(file.fileno())

    def _remove_before(self, newest: Path) -> None:
        for path in self.folder.glob("step-*"):
            if path != newest:
                shutil.rmtree(path, ignore_errors=True)


def _sync(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
