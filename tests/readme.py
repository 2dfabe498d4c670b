"""Run the README's commands, in order: `python -m tests.readme`.

Every fenced block marked `bash` is run line by line, as a stranger would, in the checkout. A
command that does not return (`make serve`) is marked with `# leave it running` and is waited for
until it prints `Ready:`; it is stopped at the end. At small counts the gate whose report the gateway takes asks less,
by a policy of its own, and what is promoted is watched for 5 seconds; nothing else differs. The commands have an
empty home folder of their own: the gateway's state lies in it, and whoever has served here before has a history there.
"""

import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from app.config.config import EMBEDDED_DEFAULT
from tests.scale import SCALE

ROOT = Path(__file__).parent.parent
SKIP = ("make test", "make bench", "git clone")
"""Run elsewhere in CI, in full; a clone of a clone proves nothing."""
READY_SECONDS = 120
COMMAND_SECONDS = 3600
SMALL = ROOT / ".work" / "readme.toml"
"""The embedded default's configuration, beside `models/` as that is, with a policy of a few prompts and a short bake."""
SMALLER = {
    "make serve ": f"make serve CONFIG={SMALL} ",
    ".venv/bin/manners gate run --candidate ": f".venv/bin/manners gate run --config {SMALL} --candidate ",
}
"""What stands for the beginning of a command at small counts."""


def commands(text: str) -> Iterator[str]:
    """The commands of every bash block; a backslash at a line's end goes on."""
    for block in re.findall(r"^```bash\n(.*?)^```", text, re.M | re.S):
        for line in re.sub(r"\\\n\s*", "", block).splitlines():
            if line.strip() and not line.startswith("#"):
                yield line


def smaller(command: str) -> str:
    """The command with the small policy, if its own is the default's."""
    before = next(filter(command.startswith, SMALLER), "")
    return SMALLER.get(before, "") + command.removeprefix(before)


def write_small() -> None:
    """Write the configuration of small counts."""
    SMALL.parent.mkdir(exist_ok=True)
    text = EMBEDDED_DEFAULT.read_text("utf-8")
    for own, small in (
        ('policy = "annie-nano"\n', f'policy = "{ROOT / "tests" / "readme.toml"}"\n'),
        ("bake_seconds = 60 ", "bake_seconds = 5 "),
    ):
        if text.count(own) != 1:
            raise SystemExit(f"{EMBEDDED_DEFAULT} no longer says {own}")
        text = text.replace(own, small)
    SMALL.write_text(text, "utf-8")


def wait_ready(server: subprocess.Popen[str]) -> None:
    """Read the server's output until it says that it is ready."""
    assert server.stdout is not None
    deadline = time.monotonic() + READY_SECONDS
    for line in server.stdout:
        print(line, end="")
        if line.startswith("Ready:"):
            return
        if time.monotonic() > deadline:
            break
    raise SystemExit(f"not ready within {READY_SECONDS} s")


def run_all(log: IO[str], home: str) -> int:
    """Run them in a home folder; the number of failures."""
    failures, servers, environ = 0, [], {**os.environ, "HOME": home}
    write_small()
    for command in commands((ROOT / "README.md").read_text("utf-8")):
        if command.startswith(SKIP):
            continue
        command = smaller(command) if SCALE == "quick" else command
        print(f"$ {command}", file=log, flush=True)
        if "# leave it running" in command:
            server = subprocess.Popen(
                ["bash", "-c", f"exec {command}"], cwd=ROOT, env=environ, stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT, text=True,
            )  # fmt: skip
            servers.append(server)
            wait_ready(server)
            continue
        code = subprocess.run(
            ["bash", "-o", "pipefail", "-c", command], cwd=ROOT, env=environ, timeout=COMMAND_SECONDS, check=False,
            stdin=subprocess.DEVNULL,
        ).returncode  # fmt: skip
        failures += code != 0
        print(f"  exit {code}", file=log, flush=True)
    for server in servers:
        server.send_signal(signal.SIGTERM)
        server.wait(60)
    return failures


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as home:
        sys.exit(run_all(sys.stdout, home))
