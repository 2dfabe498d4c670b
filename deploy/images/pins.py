"""`engines.lock`: the digest of each image tag at the time when an operator pinned it.

    {"images": {"vllm/vllm-openai:v0.24.0": "vllm/vllm-openai@sha256:…", "my-engine:latest": "sha256:…"}}

It is beside the configuration. A tag in the configuration is resolved with it; a tag without an entry is refused. An image
that is in no registry is pinned by its id, and other hosts cannot pull it.
"""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from deploy.core.errors import DockerError, PinError
from deploy.drivers.docker_client import Docker
from deploy.engine.spec import PINNED_IMAGE

LOCK = "engines.lock"


class _Lock(msgspec.Struct):
    images: dict[str, str]


def lock_path(folder: Path) -> Path:
    return folder / LOCK


def read_lock(path: Path) -> dict[str, str]:
    """The pins of a lock file; none if there is no file. Raises PinError."""
    try:
        images = msgspec.json.decode(path.read_bytes(), type=_Lock).images
    except FileNotFoundError:
        return {}
    except (OSError, RecursionError, msgspec.MsgspecError) as error:
        raise PinError(f"{path} is not a lock of images ({error})") from None
    for tag, pin in images.items():
        if not PINNED_IMAGE.fullmatch(pin):
            raise PinError(f"{path}: {tag} is not pinned to a digest")
    return images


def write_lock(path: Path, images: Mapping[str, str]) -> None:
    """Write the pins, sorted, by rename. Raises OSError."""
    replace_text(path, json.dumps({"images": dict(sorted(images.items()))}, indent=1) + "\n")


def replace_text(path: Path, text: str) -> None:
    """Write a file atomically, by rename. Raises OSError."""
    fresh = path.with_name(f".{path.name}.{os.getpid()}")
    fresh.write_text(text, "utf-8")
    fresh.replace(path)


def pinned(image: str, folder: Path) -> str:
    """An image of a configuration in this folder, with a tag replaced by its pin, if it has one. Raises PinError."""
    return image if PINNED_IMAGE.fullmatch(image) else read_lock(lock_path(folder)).get(image, image)


def pin_of(reference: str, image: Mapping[str, Any]) -> str:
    """The pin of a local image: its registry digest, or its id."""
    name = _name(reference)
    digests = [str(digest) for digest in image.get("RepoDigests") or ()]
    named = [digest for digest in digests if _name(digest.partition("@")[0]) == name]
    return next(iter([*named, *digests]), str(image["Id"]))


def _name(reference: str) -> str:
    """The name without tag, and without the prefixes that Docker omits for Docker Hub."""
    head, slash, last = reference.rpartition("/")
    bare = head + slash + last.partition(":")[0]
    return bare.removeprefix("docker.io/").removeprefix("library/")


async def pin(reference: str, docker: Docker, *, pull: bool = False) -> str:
    """The pin of a tag on this host; with `pull`, after pulling it from its registry. Raises DockerError."""
    if PINNED_IMAGE.fullmatch(reference):
        return reference
    if pull:
        await docker.pull(reference if ":" in reference.rpartition("/")[2] else f"{reference}:latest")
    image = await docker.image(reference)
    if image is None:
        raise DockerError(f"{reference} is not on this host; `--pull` fetches it", status=404)
    return pin_of(reference, image)
