"""Checkpoints of a run, beside the place of its result: NAME.training/step-00000200/rank-0.pt; a step of `ptq` is a layer.

Each process writes its part into a folder of another name; when all parts are on the disk, the folder is renamed. So a kill at any
moment leaves a whole checkpoint. `run.json` says what run they are of. torch.distributed.checkpoint is not used: it reads its
metadata with pickle, or holds a process's part in memory twice. A checkpoint cannot run code.
"""

import json
import os
import shutil
from collections.abc import Callable, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any, Final

import torch

from gates.artefact.durable import draft as draft_of
from gates.artefact.durable import sync
from quantizer.core.errors import CheckpointError, first_line
from quantizer.core.shard import World

FORMAT: Final = 3
_RUN: Final = "run.json"


class Checkpoints:
    """The checkpoints of one run: the newest stays on the disk. about: returns all that makes it this run and no other, as JSON
    values; called when it is needed, for it may read the source."""

    def __init__(
        self, folder: Path, about: Callable[[], Mapping[str, Any]], world: World | None = None
    ) -> None:
        self.folder, self._about, self.world = folder, about, world or World()

    @cached_property
    def about(self) -> dict[str, Any]:
        return {"format": FORMAT, **self._about()}

    def begin(self, resume: bool) -> dict[str, Any] | None:
        """The state to go on from, or None for a run that begins. Raises CheckpointError, in every process."""
        try:
            state = self._begin(resume)
        except CheckpointError:
            self.world.agree(False)
            raise
        if not self.world.agree():
            raise CheckpointError(
                f"{self.folder}: another process cannot read its part of the checkpoint: see that process's message"
            )
        return state

    def _begin(self, resume: bool) -> dict[str, Any] | None:
        if not self.folder.exists():
            return None
        if not resume:
            raise CheckpointError(
                f"{self.folder}: holds checkpoints of an unfinished run: continue it with --resume, or remove the folder"
            )
        newest = self.newest()
        if newest is None:  # killed before the first was whole
            return None
        self._check_run()
        if (count := len(list(newest.glob("rank-*.pt")))) != self.world.size:
            raise CheckpointError(f"the run had {count} processes: start {count} again")
        return self._load(newest / f"rank-{self.world.rank}.pt")

    def save(self, state: Mapping[str, Any]) -> None:
        """Bring a state to the disk. Raises CheckpointError, in every process, if a disk refuses; those before are
        safe."""
        name = f"step-{state['step']:08}"
        draft, place = self.folder / f"{name}.unfinished", self.folder / name
        part = draft / f"rank-{self.world.rank}.pt"
        self._together(place, draft, self.world.rank == 0, lambda: self._make(draft))
        self._together(place, draft, True, lambda: self._write(part, state))
        self._together(place, draft, self.world.rank == 0, lambda: self._commit(draft, place))

    def remove(self) -> None:
        """The run is over."""
        self.world.agree()
        if self.world.rank == 0:
            shutil.rmtree(self.folder, ignore_errors=True)

    def _together(self, place: Path, draft: Path, mine: bool, work: Callable[[], None]) -> None:
        """Do a part of a `save`, if it is this process's, and fail in every process if it fails in any."""
        failed: OSError | RuntimeError | None = None
        try:
            if mine:
                work()
        except (OSError, RuntimeError) as error:  # torch.save reports a full disk as RuntimeError
            failed = error
        if self.world.agree(failed is None):
            return
        if self.world.rank == 0:
            shutil.rmtree(draft, ignore_errors=True)
        reason = first_line(failed) if failed else "in another process"
        raise CheckpointError(
            f"{place}: cannot be written ({reason}); make room and go on with --resume"
        ) from failed

    def _commit(self, draft: Path, place: Path) -> None:
        """All parts are on the disk: let the folder have its name."""
        sync(draft)
        draft.rename(place)
        sync(self.folder)
        self._remove_before(place)

    def _make(self, draft: Path) -> None:
        """An empty folder to write in, and around it, the first time, the one that says what run this is."""
        if not (self.folder / _RUN).exists():
            self.folder.mkdir(parents=True, exist_ok=True)
            text = json.dumps(self.about, indent=2, ensure_ascii=False)
            _write(self.folder / _RUN, text)
        shutil.rmtree(draft, ignore_errors=True)
        draft.mkdir()

    def _check_run(self) -> None:
        try:
            known = dict(json.loads((self.folder / _RUN).read_text("utf-8")))
        except (OSError, ValueError, TypeError):
            raise CheckpointError(
                f"{self.folder / _RUN}: cannot be read; remove the folder to begin again"
            ) from None
        now = json.loads(json.dumps(self.about))
        if other := sorted(key for key in {*known, *now} if known.get(key) != now.get(key)):
            raise CheckpointError(
                f"{self.folder}: belongs to another run ({', '.join(other)} differ); remove it to begin again"
            )

    def newest(self) -> Path | None:
        """The newest checkpoint that is whole."""
        return max(self.folder.glob("step-????????"), default=None)

    def _load(self, path: Path) -> dict[str, Any]:
        try:
            state = torch.load(
                path, map_location="cpu", weights_only=True, mmap=True
            )  # a GPU's memory may be the host's
        except Exception as error:  # whatever a damaged file makes of an unpickler
            raise CheckpointError(
                f"{path}: is damaged ({first_line(error):.80}); remove the folder to begin again"
            ) from None
        return dict(state)

    def _write(self, path: Path, state: Mapping[str, Any]) -> None:
        with path.open("wb") as file:
            torch.save(dict(state), file)
            file.flush()
            os.fsync(file.fileno())

    def _remove_before(self, newest: Path) -> None:
        """Everything but the newest, drafts of killed processes included."""
        for path in set(self.folder.glob("step-*")) - {newest}:
            shutil.rmtree(path, ignore_errors=True)


def _write(path: Path, text: str) -> None:
    """Write a file whole or not at all."""
    draft_of(path, f"{text}\n".encode(), 0o644).rename(path)
