"""Checkpoints of a run, beside the place of its result: NAME.training/step-00000200/rank-0.pt

Each process writes its part into a folder of another name; when all parts are on the disk, the manifest is written and the folder is
renamed. So a kill at any moment leaves a whole checkpoint. `run.json` says what run they are of. torch.distributed.checkpoint is not
used: it reads its metadata with pickle, or holds a process's part in memory twice. A checkpoint cannot run code.
"""

import hashlib
import json
import os
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import torch

from gates.artefact.durable import draft as draft_of
from gates.artefact.durable import sync
from quantizer.core.errors import CheckpointError, first_line
from quantizer.train.shard import World

FORMAT: Final = 2
_RUN: Final = "run.json"
_MANIFEST: Final = "manifest.json"


class Checkpoints:
    """The checkpoints of one run: the newest stays on the disk. about: all that makes it this run and no other, as JSON values."""

    def __init__(self, folder: Path, about: Mapping[str, Any], world: World | None = None) -> None:
        self.folder, self.about, self.world = folder, {"format": FORMAT, **about}, world or World()

    @property
    def digest(self) -> str:
        text = json.dumps(self.about, sort_keys=True, ensure_ascii=False)
        return f"sha256:{hashlib.sha256(text.encode()).hexdigest()}"

    def begin(self, resume: bool) -> dict[str, Any] | None:
        """The state to go on from, or None for a run that begins. Raises CheckpointError, in every process."""
        try:
            state = self._begin(resume)
        except CheckpointError:
            self.world.agree(False)
            raise
        if not self.world.agree():
            raise CheckpointError(f"{self.folder}: another process cannot read its part; see what it says")
        return state

    def _begin(self, resume: bool) -> dict[str, Any] | None:
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
        paths = self._parts(newest)
        if len(paths) != self.world.size:
            raise CheckpointError(f"the run was on {len(paths)} processes: start {len(paths)} again")
        return self._load(paths[self.world.rank])

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
        """All parts are on the disk: list them, and let the folder have its name."""
        text = json.dumps({"run": self.digest, "processes": self.world.size}, indent=2)
        _write(draft / _MANIFEST, text)
        draft.rename(place)
        sync(self.folder)
        self._remove_before(place)

    def _parts(self, folder: Path) -> list[Path]:
        """The parts of a checkpoint, by rank. Raises CheckpointError."""
        try:
            count = int(json.loads((folder / _MANIFEST).read_text("utf-8"))["processes"])
        except (OSError, ValueError, TypeError, KeyError) as error:
            raise CheckpointError(
                f"{folder}: is damaged ({error}); remove the folder to begin again"
            ) from None
        return [folder / f"rank-{rank}.pt" for rank in range(count)]

    def _make(self, draft: Path) -> None:
        """An empty folder to write in, and around it, the first time, the one that says what run this is."""
        if not (self.folder / _RUN).exists():
            self.folder.mkdir(parents=True, exist_ok=True)
            text = json.dumps({"digest": self.digest, **self.about}, indent=2, ensure_ascii=False)
            _write(self.folder / _RUN, text)
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
        return max((path.parent for path in self.folder.glob(f"step-????????/{_MANIFEST}")), default=None)

    def _load(self, path: Path) -> dict[str, Any]:
        try:
            state = torch.load(
                path, map_location="cpu", weights_only=True, mmap=True
            )  # a GPU's memory may be the host's
        except Exception as error:  # whatever a damaged file makes of an unpickler
            raise CheckpointError(
                f"{path}: is damaged ({first_line(error):.80}); remove the folder to begin again"
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
        """Everything but the newest, drafts of killed processes included."""
        for path in set(self.folder.glob("step-*")) - {newest}:
            shutil.rmtree(path, ignore_errors=True)


def _write(path: Path, text: str) -> None:
    """Write a file whole or not at all."""
    draft_of(path, f"{text}\n".encode(), 0o644).rename(path)
