"""What lies at the paths that a container is to be given: no symbolic link, on the whole way to it.

Docker follows links when it mounts a path, and it does so as root. The gateway may write to its state
folder; a link there, in the place of a cache, would give an engine any folder of the host to write to.
"""

import os
import stat
from collections.abc import Iterable, Mapping
from pathlib import PurePosixPath
from typing import Any

from deploy.launcher.policy import RequestNotAllowed

Identity = tuple[tuple[str, int, int, int], ...]
"""Of each path: itself, its device and inode, and when its folder last changed (ctime in nanoseconds)."""


def sources(container: Mapping[str, Any]) -> tuple[str, ...]:
    """Where on the host a container's mounts come from: of a body for `create`, or of an inspection."""
    host = container.get("HostConfig") or {}
    listed = [*(host.get("Mounts") or ()), *(container.get("Mounts") or ())]
    return tuple(dict.fromkeys(str(mount.get("Source", "")) for mount in listed))


def identify(paths: Iterable[str]) -> Identity:
    """Who each path is. Raises Forbidden for one with a link in it, or that cannot be looked at.

    Two calls are equal only if nothing was put in the place of a path between them.
    """
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
    """A descriptor of what this name is in a folder. Raises Forbidden for a link."""
    try:
        found = os.open(name, os.O_PATH | os.O_NOFOLLOW, dir_fd=folder)
    except OSError as error:
        why = f"the launcher cannot look at a mount's source ({error.strerror}: {name[:80]!r})"
        raise RequestNotAllowed(f"{why}; mount the state and the models into it, read-only") from None
    if stat.S_ISLNK(os.fstat(found).st_mode):
        os.close(found)
        raise RequestNotAllowed(f"a mount's source has a symbolic link in it: {name[:80]!r}")
    return found
