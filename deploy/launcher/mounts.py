"""Checks the host paths that a container mounts: no part of such a path may be a symbolic link.

Docker follows links as root, and the gateway may write to its state folder: a link there in place of a cache would give an
engine write access to any folder of the host.
"""

import os
import stat
from collections.abc import Iterable, Mapping
from pathlib import PurePosixPath
from typing import Any

from deploy.launcher.policy import RequestNotAllowed

Identity = tuple[tuple[str, int, int, int], ...]
"""For each path: the path, its device and inode, and its folder's ctime in nanoseconds."""


def sources(container: Mapping[str, Any]) -> tuple[str, ...]:
    """The host paths of a container's mounts, from the body of `create` or from an inspection."""
    host = container.get("HostConfig") or {}
    listed = [*(host.get("Mounts") or ()), *(container.get("Mounts") or ())]
    return tuple(dict.fromkeys(str(mount.get("Source", "")) for mount in listed))


def identify(paths: Iterable[str]) -> Identity:
    """The identity of each path; equal only if no path was replaced between two calls. Raises RequestNotAllowed for a link."""
    return tuple(_identify(path) for path in paths)


def _identify(path: str) -> tuple[str, int, int, int]:
    parts = PurePosixPath(path).parts
    if not parts or parts[0] != "/" or ".." in parts:
        raise RequestNotAllowed("a mount's source is no absolute path")
    at, folder_changed = os.open("/", os.O_PATH), 0
    try:
        for part in parts[1:]:
            folder_changed = os.fstat(at).st_ctime_ns
            inside = _open(part, at)
            os.close(at)
            at = inside
        found = os.fstat(at)
    finally:
        os.close(at)
    return path, found.st_dev, found.st_ino, folder_changed


def _open(name: str, folder: int) -> int:
    """Open a name in a folder. Raises RequestNotAllowed for a symbolic link."""
    try:
        found = os.open(name, os.O_PATH | os.O_NOFOLLOW, dir_fd=folder)
    except OSError as error:
        why = f"the launcher cannot look at a mount's source ({error.strerror}: {name[:80]!r})"
        raise RequestNotAllowed(f"{why}; mount the state and the models into it, read-only") from None
    if stat.S_ISLNK(os.fstat(found).st_mode):
        os.close(found)
        raise RequestNotAllowed(f"a mount's source has a symbolic link in it: {name[:80]!r}")
    return found
