"""A memory cgroup of these tests' own, in either version of cgroups: a small host within this one."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

MOUNT = Path("/sys/fs/cgroup")
MISSING = (
    "no memory cgroup can be made: run as root, with /sys/fs/cgroup writable (in a container: --privileged)"
)


@dataclass(frozen=True)
class Cgroup:
    """`folder` is its own; `v2` how its files are called."""

    folder: Path
    v2: bool

    @property
    def procs(self) -> Path:
        """Whoever writes a pid here moves that process in."""
        return self.folder / "cgroup.procs"

    def limit(self, size: int) -> None:
        """What may be had before the kernel kills, in bytes."""
        (self.folder / ("memory.max" if self.v2 else "memory.limit_in_bytes")).write_text(str(size))

    def used(self) -> int:
        """Bytes that processes hold; the page cache, which can be had back, is not among them."""
        key = "anon" if self.v2 else "total_rss"
        lines = (self.folder / "memory.stat").read_text().splitlines()
        return next(int(line.split()[1]) for line in lines if line.split()[0] == key)

    def kills(self) -> int:
        """How often the kernel had to kill in here."""
        name = "memory.events" if self.v2 else "memory.oom_control"
        lines = dict(line.split() for line in (self.folder / name).read_text().splitlines())
        return int(lines["oom_kill"])


@contextmanager
def own_cgroup() -> Iterator[Cgroup]:
    """One within this, empty and unlimited.

    Raises:
        OSError: it cannot be made here.
    """
    v2 = not (MOUNT / "memory").is_dir()
    root = MOUNT if v2 else MOUNT / "memory"
    if v2:
        (root / "cgroup.subtree_control").write_text("+memory")
    folder = root / f"manners-test-{os.getpid()}"
    folder.mkdir()
    try:
        yield Cgroup(folder, v2)
    finally:
        folder.rmdir()
