"""The `docker` driver: an engine in a container of a digest-pinned image.

A container outlives the gateway and is found again by its labels; one of the same spec and weights is adopted. An
unreachable Docker daemon is waited for: its containers may still be running.
"""

import asyncio
import hashlib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Unpack

from deploy.core.errors import DockerError, SpecError, StartFailed, StartRefused, WeightsError
from deploy.drivers.container import (
    MODEL,
    NETWORK,
    PREFIX,
    Placement,
    argv,
    container_name,
    create_body,
    labels,
)
from deploy.drivers.container_run import ContainerRun
from deploy.drivers.docker_client import Docker, Json, shared
from deploy.engine.dialects import DIALECTS
from deploy.engine.engine import Phase
from deploy.engine.spec import EngineSpec
from deploy.engine.supervised import Engine, EngineRun, Supervision
from deploy.engine.supervisor import EventKind
from deploy.engine.weights import MANIFEST, find_model
from gates.artefact import artefact as artefacts
from gates.contracts.errors import ManifestError

LOAD_SECONDS = 1800.0
"""From a container's start to its first token: FlashInfer may compile for ten minutes without output."""
STOP_SECONDS = 20.0
NOBODY = 65534


def instance_of(state_dir: Path) -> str:
    """The identifier of a gateway in its containers' labels: 12 hex digits of a hash of its state folder's path."""
    return hashlib.sha256(str(state_dir.resolve()).encode()).hexdigest()[:12]


def weights_digest(artefact: Path) -> str:
    """The identity of an artefact's weights: the manifest's root digest, or size and mtime of a file without one."""
    try:
        return artefacts.load(artefacts.folder_of(artefact)).root
    except (ManifestError, OSError):
        seen = artefact.stat()
        return f"file:{seen.st_size}:{seen.st_mtime_ns}"


class DockerEngine(Engine):
    """An `Engine` in a container. Raises SpecError: it has no artefact; FlagError: one of `args` is the driver's to set."""

    start_timeout_s = LOAD_SECONDS
    stop_grace_s = STOP_SECONDS

    def __init__(
        self,
        spec: EngineSpec,
        *,
        state_dir: Path,
        docker: Docker | None = None,
        **how: Unpack[Supervision],
    ) -> None:
        assert spec.image is not None  # of every spec for this driver
        if spec.artefact is None:
            raise SpecError(spec.name, "artefact", "the docker driver needs the model that it mounts")
        argv(spec, MODEL)
        super().__init__(spec, state_dir=state_dir, **how)
        self._artefact, self._image = spec.artefact, spec.image
        self._state_dir = state_dir
        self._docker = docker or shared()
        self._instance = instance_of(state_dir)
        self._container = container_name(spec, self._instance)

    def _prepare(self) -> None:
        model = find_model(self._spec)
        if not DIALECTS[self._spec.dialect].gguf and model.is_file():
            raise WeightsError(
                f"{model} is a file; a {self._spec.dialect} container needs a folder with {MANIFEST}"
            )

    async def leave(self) -> None:
        """The container lives on; the next `start()` of this spec adopts it. See `Engine.leave`."""
        if self._child.phase not in (Phase.STARTING, Phase.READY) or self._life is None:
            await self.stop()
            return
        self._life.cancel()
        await asyncio.wait([self._life])
        if self._child.phase in (Phase.STARTING, Phase.READY):
            self._feed(EventKind.LEFT)

    async def describe(self) -> Mapping[str, Any]:
        """Adds the container's facts from the Docker daemon; see `Engine.describe`. Raises DockerError."""
        seen = await self._docker.inspect(self._container)
        return {**await super().describe(), **(_described(seen) if seen is not None else {})}

    async def _start_log(self) -> str:
        return await self._run.start_log() if isinstance(self._run, ContainerRun) else ""

    # Starting a run.

    async def _spawn(self) -> EngineRun:
        try:
            adopted = await self._adoptable()
            seen = adopted or await self._create()
        except DockerError as error:
            kind = StartRefused if error.is_final else StartFailed
            raise kind(self.name, str(error)) from None
        if adopted:
            self._weights = None  # it was loaded before this process looked at it
        return ContainerRun(self._docker, seen, self._log_path, adopted=adopted is not None)

    async def _adoptable(self) -> Json | None:
        """A container of an earlier start that can be adopted; any other of this name is removed."""
        seen = await self._docker.inspect(self._container)
        if seen is None:
            return None
        theirs, ours = seen["Config"]["Labels"] or {}, labels(self._spec, self._placing())
        if theirs.get(f"{PREFIX}instance") != self._instance:
            raise StartRefused(
                self.name, f"there is a container {self._container} that is not this gateway's"
            )
        differs = any(theirs.get(key) != value for key, value in ours.items())
        if seen["State"]["Running"] and not differs:
            return seen
        await self._docker.remove(seen["Id"])
        return None

    async def _create(self) -> Json:
        image = await self._docker.image(self._image)
        if image is None:
            why = f"{self._image} is not on this host; fetch it with: docker pull {self._image}"
            raise StartRefused(self.name, why)
        await self._docker.ensure_network(NETWORK)
        placement = self._placing()
        self._make_cache(Path(placement.cache), placement.user)
        container = await self._docker.create(self._container, create_body(self._spec, placement))
        try:
            await self._docker.start(container)
        except DockerError:
            await self._docker.remove(container)  # it never ran, so it has no log
            raise
        seen = await self._docker.inspect(container)
        if seen is None:
            raise StartFailed(self.name, "its container was removed as soon as it was made")
        return seen

    def _placing(self) -> Placement:
        model, inside = find_model(self._spec), MODEL
        if DIALECTS[self._spec.dialect].gguf:
            inside = f"{MODEL}/{model.name}"
        uid, gid = (os.getuid(), os.getgid()) if os.getuid() else (NOBODY, NOBODY)
        digest = self._image.partition("sha256:")[2]
        return Placement(
            instance=self._instance,
            artefact=weights_digest(self._artefact),
            model=str(model),
            inside=inside,
            cache=str(self._state_dir.resolve() / "caches" / digest[:16]),
            user=f"{uid}:{gid}",
        )

    def _make_cache(self, path: Path, user: str) -> None:
        """Create the cache folder, which only the engine's user may write to."""
        if os.access(path.parent, os.F_OK) and not os.access(path.parent, os.W_OK):
            return  # read-only: the launcher makes it
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        if os.getuid() == 0:
            uid, _, gid = user.partition(":")
            os.chown(path, int(uid), int(gid), follow_symlinks=False)


def _described(seen: Json) -> dict[str, Any]:
    mounts = {mount["Destination"]: mount["Source"] for mount in seen["Mounts"]}
    return {
        "argv": (seen["Path"], *seen["Args"]),
        "image": seen["Config"]["Image"],
        "image_id": seen["Image"],
        "container": seen["Id"],
        "labels": seen["Config"]["Labels"],
        "mounts": mounts,
        "model_file": next((path for where, path in mounts.items() if where.startswith(MODEL)), None),
        "running": seen["State"]["Running"],
    }
