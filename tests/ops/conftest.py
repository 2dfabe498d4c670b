"""A Docker Engine and the gateway's image on it, once for all of these tests.

No registry is asked: the base is made by debootstrap. pip and apt reach theirs over the host's network.
"""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.docker.daemon import MISSING, Daemon, own_daemon
from tests.ops.facts import ROOT

INSTALL = "needs debootstrap: as root, apt-get install -y --no-install-recommends debootstrap"
PACKAGES = "ca-certificates,libgomp1,python3,python3-venv"
BASE, IMAGE = "manners-test-base", "manners-test"


def run(*argv: str, **environ: str) -> None:
    """A command that must succeed; what it said, if it did not."""
    done = subprocess.run(argv, cwd=ROOT, env={**os.environ, **environ}, capture_output=True, timeout=1500)
    assert done.returncode == 0, (done.stdout + done.stderr)[-4000:].decode("utf-8", "replace")


def codename() -> str:
    """The release of Debian that this machine runs."""
    lines = Path("/etc/os-release").read_text("utf-8").splitlines()
    return next(line.partition("=")[2] for line in lines if line.startswith("VERSION_CODENAME="))


@contextmanager
def in_memory() -> Iterator[Path]:
    """A folder in memory: on a disk dpkg would wait for it after every file. On the disk where none can be mounted."""
    with tempfile.TemporaryDirectory() as name:
        mount = ["mount", "-t", "tmpfs", "-o", "size=2g", "tmpfs", name]
        mounted = subprocess.run(mount, check=False, timeout=60).returncode == 0
        try:
            yield Path(name)
        finally:
            if mounted:
                subprocess.run(["umount", "--lazy", name], check=True, timeout=60)


@pytest.fixture(scope="session")
def daemon() -> Iterator[Daemon]:
    """A Docker Engine of these tests' own."""
    if not Daemon.is_possible():
        pytest.skip(MISSING)
    if shutil.which("debootstrap") is None:
        pytest.skip(INSTALL)
    with own_daemon() as it:
        yield it


@pytest.fixture(scope="session")
def image(daemon: Daemon) -> dict[str, Any]:
    """What the daemon says of the image that it built from this tree."""
    where = {"DOCKER_HOST": daemon.url, "DOCKER_BUILDKIT": "0"}
    with in_memory() as memory:
        folder = memory / "root"
        run("debootstrap", "--variant=minbase", f"--include={PACKAGES}", codename(), str(folder))
        # Machines that reach PyPI by a proxy of their own trust its certificate; so must pip in there.
        shutil.copy("/etc/ssl/certs/ca-certificates.crt", folder / "etc/ssl/certs")
        run("bash", "-o", "pipefail", "-c", f"tar -C {folder} -c . | docker import - {BASE}", **where)
    run("docker", "build", "--network", "host", "--build-arg", f"BASE={BASE}", "-t", IMAGE, ".", **where)
    with daemon.api() as api:
        added = api.inspect_image(IMAGE)["Size"] - api.inspect_image(BASE)["Size"]
        return {**api.inspect_image(IMAGE), "Added": added}


def pytest_configure(config: pytest.Config) -> None:
    """The SDK forgets sockets that it could not connect."""
    config.addinivalue_line("filterwarnings", "ignore:unclosed <socket:ResourceWarning")
