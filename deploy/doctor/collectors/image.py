"""Facts about an image, from Docker and from a container that runs once, without network, to report its contents.

The state folder caches the answer by the image's digest, which determines the contents.
"""

import asyncio
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final
from uuid import uuid4

from deploy.core.errors import DockerError
from deploy.doctor.collectors.host import release, text_of
from deploy.doctor.evidence import EngineFacts, ImageContents, ImageFacts, render
from deploy.drivers.docker_client import Docker
from gates.decode import decoder

PROBE_SECONDS: Final = 180.0
"""Importing torch in a cold image takes minutes."""
_LOOK_SECONDS: Final = 0.5
_PYTHON: Final = Path(__file__).with_name("image_contents.py")
_LLAMA: Final = "echo release $CUDA_VERSION; cd /app; ./llama-server --version 2>&1; ./llama-server -m none.gguf 2>&1; true"


async def images(
    engines: Mapping[str, EngineFacts], docker: Docker, *, cache: Path | None, probe: bool
) -> tuple[str | None, dict[str, ImageFacts]]:
    """The Docker daemon's version (None if it does not answer) and the image of every engine that has one."""
    wanted = {name: e for name, e in engines.items() if e.driver == "docker" and e.image}
    if not wanted:
        return None, {}
    try:
        version = str((await docker.version()).get("Version") or "")
        return version or None, {name: await _image(e, docker, cache, probe) for name, e in wanted.items()}
    except DockerError:
        return None, {name: ImageFacts(inside=_kept(cache, _reference(e))) for name, e in wanted.items()}


def _reference(engine: EngineFacts) -> str:
    """The image that will run: the pin of a tag, if it has one."""
    return engine.pin or engine.image or ""


async def _image(engine: EngineFacts, docker: Docker, cache: Path | None, probe: bool) -> ImageFacts:
    reference = _reference(engine)
    inside, held = _kept(cache, reference), await docker.image(reference)
    if held is None:
        return ImageFacts(inside=inside)
    if inside is None and probe:
        inside = await _probe(engine, docker)
        _keep(cache, reference, inside)
    return ImageFacts(
        architecture=held.get("Architecture"),
        size=held.get("Size"),
        inside=inside,
    )


# ------------------------------------------------------------------------------------------- probe


async def _probe(engine: EngineFacts, docker: Docker) -> ImageContents | None:
    """Run the probe container and parse its output; None if it could not run."""
    llama = engine.dialect == "llama-server"
    command = ["sh", "-c", _LLAMA] if llama else ["python3", "-c", _PYTHON.read_text("utf-8")]
    try:
        told = (await _run(_reference(engine), command, docker)).decode("utf-8", "replace")
    except (DockerError, TimeoutError):
        return None
    return parse_llama(told) if llama else parse_inside(told)


async def _run(image: str, command: list[str], docker: Docker) -> bytes:
    host = {
        "NetworkMode": "none",
        "CapDrop": ["ALL"],
        "SecurityOpt": ["no-new-privileges"],
        "DeviceRequests": [{"Driver": "", "Count": -1, "Capabilities": [["gpu"]]}],
    }
    body = {"Image": image, "Entrypoint": command[:1], "Cmd": command[1:], "HostConfig": host}
    container = await docker.create(f"manners-doctor-{uuid4().hex[:12]}", body)
    try:
        await docker.start(container)
        async with asyncio.timeout(PROBE_SECONDS):
            while ((await docker.inspect(container)) or {}).get("State", {}).get("Running"):
                await asyncio.sleep(_LOOK_SECONDS)
        return await docker.logs(container)
    finally:
        await docker.remove(container)


def parse_inside(told: str) -> ImageContents | None:
    """The facts in the last JSON line of a container's output; None if there is none."""
    lines = [line for line in told.splitlines() if line.startswith("{")]
    try:
        found = {key: value for key, value in json.loads(lines[-1]).items() if value is not None}
        found["nvcc"] = release(found["nvcc"]) or ""
        return decoder.read(ImageContents, found)
    except (LookupError, ValueError):
        return None


def parse_llama(told: str) -> ImageContents:
    """The facts in llama-server's output, of which its system line has "ARCHS = 750,...,1210"."""
    archs = re.search(r"ARCHS = ([\d,]+)", told)
    return ImageContents(
        cuda=release(told),
        ggml_archs=tuple(archs[1].split(",")) if archs else None,
    )


# ------------------------------------------------------------------------------------------- cache


def _file(cache: Path | None, reference: str) -> Path | None:
    digest = reference.rpartition("sha256:")[2]
    return cache / "doctor" / f"{digest}.json" if cache and re.fullmatch(r"[0-9a-f]{64}", digest) else None


def _kept(cache: Path | None, reference: str) -> ImageContents | None:
    path = _file(cache, reference)
    try:
        return decoder.read(ImageContents, json.loads((text_of(path) if path else None) or ""))
    except ValueError:
        return None


def _keep(cache: Path | None, reference: str, inside: ImageContents | None) -> None:
    path = _file(cache, reference)
    if path is not None and inside is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(render(inside), encoding="utf-8")
