"""Which gateway of this user runs: each writes its addresses into its state folder, where commands look for it."""

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

FILE: Final = "gateway.json"


@dataclass(frozen=True)
class RunningGateway:
    """The addresses of a gateway, and its process."""

    public: str
    admin: str
    pid: int
    state: str

    @contextmanager
    def announced(self) -> Iterator[None]:
        """It stands in its state folder meanwhile. A folder that takes no file is no reason to stop."""
        file = Path(self.state) / FILE
        with suppress(OSError):
            file.write_text(json.dumps(asdict(self)), "utf-8")
        try:
            yield
        finally:
            with suppress(OSError):
                file.unlink()


def find(root: Path | None = None) -> RunningGateway | None:
    """The gateway that runs with the state folder `root`, or else the latest of `manners serve MODEL` below it."""
    root = root or Path("~/.local/state/manners").expanduser()
    found: list[tuple[bool, float, RunningGateway]] = []
    for path in (root / FILE, *root.glob(f"serve/*/{FILE}")):
        with suppress(OSError, ValueError, TypeError):  # none, half written, or its process has ended
            gateway = RunningGateway(**json.loads(path.read_text("utf-8")))
            os.kill(gateway.pid, 0)
            found.append((path.parent == root, path.stat().st_mtime, gateway))
    return max(found, key=lambda it: it[:2])[2] if found else None
