"""Creates the engine for a spec, and finds containers that an earlier gateway left."""

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from deploy.drivers.container import PREFIX
from deploy.drivers.container_run import ContainerRun
from deploy.drivers.docker import STOP_SECONDS, DockerEngine, instance_of
from deploy.drivers.docker_client import Docker, shared
from deploy.drivers.embedded import EmbeddedEngine
from deploy.drivers.process import ProcessEngine
from deploy.drivers.url import UrlEngine
from deploy.engine.engine import OnChange
from deploy.engine.log import log_path
from deploy.engine.spec import EngineSpec
from deploy.engine.supervised import Engine
from deploy.engine.supervisor import RestartPolicy


def make_engine(
    spec: EngineSpec,
    *,
    state_dir: Path,
    on_change: OnChange | None = None,
    retry_s: float | None = None,
) -> Engine:
    """Create the engine for a spec; it is not started. After a failed start it is tried again every `retry_s`, if given.

    Raises SpecError, WeightsError, FlagError: the driver cannot serve this artefact or these flags.
    """
    policy = RestartPolicy(retry_s=retry_s)
    if spec.driver == "embedded":
        return EmbeddedEngine(spec, state_dir=state_dir, on_change=on_change, policy=policy)
    if spec.driver == "process":
        return ProcessEngine(spec, state_dir=state_dir, on_change=on_change, policy=policy)
    if spec.driver == "docker":
        return DockerEngine(spec, state_dir=state_dir, on_change=on_change, policy=policy)
    return UrlEngine(spec, on_change=on_change, policy=policy)


@dataclass(frozen=True, slots=True)
class FoundContainer:
    """A container of this gateway, by its labels; `spec` is the digest of the spec it was made from."""

    engine: str
    spec: str
    container: str
    running: bool


async def running(
    specs: Iterable[EngineSpec], *, state_dir: Path, docker: Docker | None = None
) -> tuple[FoundContainer, ...]:
    """The containers that an earlier gateway of this state folder left. Raises DockerError."""
    if not any(spec.driver == "docker" for spec in specs):
        return ()
    listed = await (docker or shared()).found({f"{PREFIX}instance": instance_of(state_dir)})
    return tuple(
        FoundContainer(
            engine=one["Labels"][f"{PREFIX}engine"],
            spec=one["Labels"][f"{PREFIX}spec"],
            container=one["Id"],
            running=one["State"] == "running",
        )
        for one in listed
    )


async def remove(found: FoundContainer, *, docker: Docker | None = None) -> None:
    """Remove a container whose operation is unknown. Raises DockerError."""
    await (docker or shared()).remove(found.container)


async def put_down(found: FoundContainer, *, state_dir: Path, docker: Docker | None = None) -> str:
    """Stop a container as its gateway would: SIGTERM, SIGKILL after a grace period, its log saved. Raises DockerError."""
    it = docker or shared()
    seen = await it.inspect(found.container)
    if seen is None:
        return "its container was removed"
    run = ContainerRun(it, seen, log_path(state_dir, found.engine), adopted=True)
    run.terminate()
    loop = asyncio.get_running_loop()
    timer = loop.call_later(STOP_SECONDS, run.kill)
    try:
        return (await run.wait()).why
    finally:
        timer.cancel()
        run.close()
