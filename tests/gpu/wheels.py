"""Which wheels a host without a network is brought: those of the locks that such a host needs and has not got itself."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatch
from typing import Final

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

WHOLE: Final = ("gateway", "quantizer")
"""Locks of which everything is brought that the markers name for the host."""
TESTING: Final = (
    "hypothesis",
    "openai",
    "pytest",
    "pytest-asyncio",
    "pytest-timeout",
    "pytest-xdist",
    "pyyaml",
)
"""Of the developers' lock: these and what they need."""
FUZZED: Final = "x86_64"
"""The only machine that the fuzzer has wheels for."""
OF_THE_HOST: Final = (
    "torch",
    "triton",
    "numpy",
    "scipy",
    "setuptools",
    "ninja",
    "hf-xet",
    "nvidia-c*",
    "nvidia-nccl*",
)
"""What an image with PyTorch has, or what is of no use without a network."""
OLDEST_GLIBC: Final = 5
"""manylinux1, the oldest that a wheel can ask for."""
_OLD_NAMES: Final = {17: "manylinux2014", 12: "manylinux2010", 5: "manylinux1"}


@dataclass(frozen=True, slots=True)
class WheelHost:
    """What wheels are chosen by: CPython's version, the processor, and the minor version of glibc 2."""

    python: str = "3.12"
    machine: str = "x86_64"
    glibc: int = 39

    @property
    def markers(self) -> dict[str, str]:
        """The environment that a lock's markers are judged in."""
        full = f"{self.python}.0"
        return {
            "python_version": self.python, "python_full_version": full, "implementation_version": full,
            "implementation_name": "cpython", "platform_python_implementation": "CPython", "sys_platform": "linux",
            "platform_system": "Linux", "os_name": "posix", "platform_machine": self.machine,
            "platform_release": "", "platform_version": "",
        }  # fmt: skip

    @property
    def platforms(self) -> list[str]:
        """Tags of platforms, the newest first. pip does not conclude from glibc 2.39 that 2.28 will do."""
        found = []
        for minor in range(self.glibc, OLDEST_GLIBC - 1, -1):
            found.append(f"manylinux_2_{minor}_{self.machine}")
            if minor in _OLD_NAMES:
                found.append(f"{_OLD_NAMES[minor]}_{self.machine}")
        return [*found, f"linux_{self.machine}"]

    @property
    def pip_options(self) -> list[str]:
        """For `pip install --target` and `pip download`."""
        named = [word for platform in self.platforms for word in ("--platform", platform)]
        return ["--only-binary=:all:", "--python-version", self.python, "--implementation", "cp", *named]


@dataclass(frozen=True, slots=True)
class LockedPackage:
    """An entry of a lock. needed_by: the packages that the lock says it is there for."""

    requirement: Requirement
    hashes: tuple[str, ...]
    needed_by: frozenset[str]

    @property
    def name(self) -> str:
        return canonicalize_name(self.requirement.name)

    def for_host(self, host: WheelHost) -> bool:
        return self.requirement.marker is None or self.requirement.marker.evaluate(host.markers)


def read_lock(text: str) -> list[LockedPackage]:
    """The packages of a lock that `uv pip compile` wrote, or of a list with hashes."""
    found = []
    for entry in re.split(r"^(?=[A-Za-z0-9])", text, flags=re.M)[1:]:
        line, *comments = re.split(r"^ *#", entry.replace("\\\n", " "), flags=re.M)
        words, *hashes = re.split(r" --hash=", line)
        parents = (word for comment in comments for word in comment.replace("via", " ", 1).split()[:1])
        names = frozenset(canonicalize_name(word.partition("[")[0]) for word in parents)
        found.append(LockedPackage(Requirement(words.strip()), tuple(one.strip() for one in hashes), names))
    return found


def with_needs(packages: Iterable[LockedPackage], names: Iterable[str]) -> list[LockedPackage]:
    """The named packages of a lock, and what they need."""
    packages, wanted = list(packages), set(names)
    while more := {one.name for one in packages if one.needed_by & wanted} - wanted:
        wanted |= more
    return [one for one in packages if one.name in wanted]


def wheels_for(locks: Mapping[str, str], host: WheelHost, leave: Sequence[str]) -> list[LockedPackage]:
    """What the host is brought, by name. locks: their texts. leave: names or patterns of what it has itself.

    Raises ValueError: two locks want different versions of a package.
    """
    packages = [one for name in WHOLE for one in read_lock(locks[name])]
    packages += with_needs(read_lock(locks["dev"]), TESTING)
    if host.machine == FUZZED:
        packages += read_lock(locks["fuzz"])
    found: dict[str, LockedPackage] = {}
    for one in packages:
        if not one.for_host(host) or any(fnmatch(one.name, pattern) for pattern in leave):
            continue
        other = found.setdefault(one.name, one)
        if other.requirement.specifier != one.requirement.specifier:
            raise ValueError(f"the locks differ: {other.requirement} and {one.requirement}")
    return [found[name] for name in sorted(found)]


def as_requirements(packages: Iterable[LockedPackage]) -> str:
    """A list with hashes for pip. Without markers: pip would judge them by the machine that it runs on."""
    lines = (" ".join((f"{one.name}{one.requirement.specifier}", *(f"--hash={h}" for h in one.hashes)))
             for one in packages)  # fmt: skip
    return "\n".join(lines) + "\n"
