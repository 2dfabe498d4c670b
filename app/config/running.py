"""Which gateway of this user runs: each writes its addresses into its state folder, where commands look for it."""

import json
import os
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

FILE: Final = "gateway.json"
FOLDERS: Final = ("", "serve/*")
"""Below the default state folder: the embedded default's, and those of `manners serve MODEL`."""


@dataclass(frozen=True)
class RunningGateway:
    """The addresses of a gateway, and its process."""

    public: str
    admin: str
    pid: int
    state: str


def announce(gateway: RunningGateway) -> None:
    """Write it into its state folder. A folder that takes no file is no reason to stop."""
    with suppress(OSError):
        (Path(gateway.state) / FILE).write_text(json.dumps(asdict(gateway)), "utf-8")


def withdraw(gateway: RunningGateway) -> None:
    """The gateway ends."""
    with suppress(OSError):
        (Path(gateway.state) / FILE).unlink()


def find(root: Path | None = None) -> RunningGateway | None:
    """The gateway that runs with the state folder `root`, or else the last to start of those below it; None: none runs."""
    root = root or Path("~/.local/state/manners").expanduser()
    found: list[tuple[bool, float, RunningGateway]] = []
    for pattern in FOLDERS:
        for path in root.glob(f"{pattern}/{FILE}".removeprefix("/")):
            with suppress(OSError, ValueError, TypeError):  # half written, or its process has ended
                gateway = RunningGateway(**json.loads(path.read_text("utf-8")))
                os.kill(gateway.pid, 0)
                found.append((path.parent == root, path.stat().st_mtime, gateway))
    return max(found, key=lambda it: it[:2])[2] if found else None
