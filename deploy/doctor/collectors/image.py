"""Facts about an image, from its name and from the Docker daemon; no container is started."""

import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

from deploy.core.errors import DockerError
from deploy.doctor.evidence import EngineFacts, ImageFacts
from deploy.drivers.docker_client import Docker

_RELEASE: Final = re.compile(r":v?(\d+\.\d+[\w.]*)")
"""In the tag of an image of vLLM, as its project names them."""


async def images(
    engines: Mapping[str, EngineFacts], docker: Docker
) -> tuple[str | None, dict[str, ImageFacts]]:
    """The Docker daemon's version (None if it does not answer) and the image of every engine that has one."""
    wanted = {name: e for name, e in engines.items() if e.driver == "docker" and e.image}
    if not wanted:
        return None, {}
    try:
        version = str((await docker.version()).get("Version") or "")
        held = {name: await docker.image(e.pin or e.image or "") for name, e in wanted.items()}
    except DockerError:
        version, held = "", {}
    return version or None, {name: _facts(e, held.get(name) or {}) for name, e in wanted.items()}


def _facts(engine: EngineFacts, held: Mapping[str, Any]) -> ImageFacts:
    names = [engine.image or "", *(held.get("RepoTags") or ())]
    return ImageFacts(
        architecture=held.get("Architecture"),
        size=held.get("Size"),
        cuda=_setting("CUDA_VERSION", (held.get("Config") or {}).get("Env") or ()),
        vllm=next((found[1] for name in names if (found := _RELEASE.search(name))), None)
        if engine.dialect == "vllm"
        else None,
    )


def _setting(name: str, environment: Iterable[str]) -> str | None:
    """An image's environment variable; NVIDIA's base images name the release of CUDA in one."""
    return next((line.partition("=")[2] for line in environment if line.startswith(f"{name}=")), None)
