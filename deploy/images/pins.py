"""`engines.lock`: the digest of each image tag at the time when an operator pinned it.

    {"images": {"vllm/vllm-openai:v0.24.0": "vllm/vllm-openai@sha256:…", "my-engine:latest": "sha256:…"}}

It is beside the configuration. A tag in the configuration is resolved with it; a tag without an entry is refused. An image
that is in no registry is pinned by its id, and other hosts cannot pull it.

The images of compose.yaml: an env file names them by tag, and its lock file by digest.

    deploy/compose/cpu.env         LLAMA_IMAGE_TAG=ghcr.io/ggml-org/llama.cpp:server
    deploy/compose/cpu.lock.env    the same lines, and LLAMA_IMAGE=ghcr.io/ggml-org/llama.cpp@sha256:…

compose.yaml requires LLAMA_IMAGE without a default, so the env file alone starts nothing. The lock is a complete
env file, because docker-compose 1 accepts only one.
"""

import json
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

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


# ------------------------------------------------------------------------------------ compose.yaml

NO_IMAGE: Final = "scratch"
"""The image of a service that the profile does not start: a name that Docker reserves and cannot run."""
_LOCK: Final = ".lock.env"
_LINE: Final = re.compile(r"^([A-Z0-9_]+_(?:IMAGE|BASE))(_TAG)?=(.*)$", re.MULTILINE)
_REFERENCE: Final = re.compile(r"[a-z0-9][a-zA-Z0-9._/:@-]*")


def compose_lock(path: Path) -> Path:
    """The path of an env file's lock, beside it."""
    return path.with_name(path.name.removesuffix(".env") + _LOCK)


def tags(path: Path) -> dict[str, str]:
    """The images that an env file names by tag, by the variable of compose.yaml: `{"LLAMA_IMAGE": "NAME:TAG"}`. Raises PinError."""
    try:
        named = _LINE.findall(path.read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise PinError(f"{path}: {getattr(error, 'strerror', None) or error}") from None
    found = {variable: value for variable, tag, value in named if tag}
    if path.name.endswith(_LOCK) or not found:
        raise PinError(f"{path} names no image to pin; a line is LLAMA_IMAGE_TAG=NAME:TAG")
    for variable, tag, value in named:
        if tag and not _REFERENCE.fullmatch(value):
            raise PinError(f"{path}: {variable}_TAG={value} is not an image's NAME:TAG")
        if not tag and value != NO_IMAGE and not PINNED_IMAGE.fullmatch(value):
            raise PinError(f"{path}: {variable}={value} is not pinned; write {variable}_TAG={value}")
    return found


def write_compose_lock(path: Path, pins: Mapping[str, str]) -> Path:
    """Write an env file's lock, by rename: its lines, and an image for each of its `tags`. Raises PinError."""
    lines = [path.read_text("utf-8").rstrip("\n"), *(f"{name}={pin}" for name, pin in pins.items())]
    lock = compose_lock(path)
    try:
        replace_text(lock, "\n".join([*lines, ""]))
    except OSError as error:
        raise PinError(f"{lock}: {error.strerror}") from None
    return lock
