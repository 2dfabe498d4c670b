"""A Docker Engine of these tests' own: beside any other, in a folder of its own, and ended with them."""

import os
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import docker

START_SECONDS = 60.0
MISSING = "no dockerd that can be started: as root, apt-get install -y docker.io"


class Daemon:
    """`dockerd`, with containers that live on while it is away (`live-restore`)."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.url = f"unix://{folder}/sock"
        self._process: subprocess.Popen[bytes] | None = None

    @staticmethod
    def is_possible() -> bool:
        """Whether one could be started here."""
        return os.getuid() == 0 and shutil.which("dockerd") is not None

    @property
    def runs(self) -> bool:
        """Whether it was started, and has not been stopped."""
        return self._process is not None

    def start(self) -> None:
        """Start it, and wait until it answers."""
        where = self._folder
        command = [
            "dockerd", "--data-root", f"{where}/root", "--exec-root", f"{where}/exec", "--pidfile", f"{where}/pid",
            "--host", self.url, "--bridge", "none", "--iptables=false", "--ip6tables=false", "--live-restore",
        ]  # fmt: skip
        with (where / "log").open("ab") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log, stdin=subprocess.DEVNULL)
        end = time.monotonic() + START_SECONDS
        while not self._answers():
            if self._process.poll() is not None or time.monotonic() > end:
                tail = (where / "log").read_text("utf-8", "replace")[-2000:]
                raise RuntimeError(f"dockerd does not come up:\n{tail}")
            time.sleep(0.1)

    def _answers(self) -> bool:
        with socket.socket(socket.AF_UNIX) as probe:
            if probe.connect_ex(str(self._folder / "sock")):
                return False
        with self.api() as api:
            return bool(api.ping())

    @contextmanager
    def api(self) -> Iterator[Any]:
        """A client for the tests' own looks."""
        client = docker.APIClient(base_url=self.url, version="1.41", timeout=120)
        try:
            yield client
        finally:
            client.close()

    def stop(self) -> None:
        """End it and nothing else; containers live on."""
        if self._process is not None:
            self._process.terminate()
            self._process.wait(30)
            self._process = None

    def clear(self) -> None:
        """Remove every container and the networks that were made."""
        with self.api() as api:
            for one in api.containers(all=True):
                api.remove_container(one["Id"], force=True)
            for network in api.networks(filters={"type": "custom"}):
                api.remove_network(network["Id"])


@contextmanager
def own_daemon() -> Iterator[Daemon]:
    """One that runs within this, and of which nothing is left after it."""
    folder = Path(tempfile.mkdtemp(prefix="dockerd-"))
    daemon = Daemon(folder)
    try:
        daemon.start()
        yield daemon
    finally:
        try:
            if daemon.runs:
                daemon.clear()
        finally:
            daemon.stop()
            for where in _mounted(folder):
                subprocess.run(["umount", "--lazy", where], check=False, timeout=30)
            shutil.rmtree(folder, ignore_errors=True)


def _mounted(folder: Path) -> list[str]:
    """What a daemon that lives on in its containers leaves mounted, the deepest first."""
    lines = Path("/proc/self/mounts").read_text("utf-8").splitlines()
    return sorted(
        (where for _, where, *_ in map(str.split, lines) if Path(where).is_relative_to(folder)), reverse=True
    )
