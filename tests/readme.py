"""Run the commands of the README and of "your model in five minutes", in order, from a wheel: `python -m tests.readme`.

Every fenced block marked `bash` is run line by line, as a stranger would who has installed the wheel into `.venv` of an empty
folder. Nothing of the checkout is visible there, so that what the package lacks fails. `make serve`, which needs the checkout,
is started there once; then the wheel's `manners serve` takes its place. A command that does not return is marked with
`# leave it running` and is waited for until it prints `Ready:`; it is stopped at the end. At small counts the gate whose report
the gateway takes asks less, by a policy of its own, and what is promoted is watched for 5 seconds; nothing else differs. The
commands have an empty home folder of their own: whoever has served here before has a state folder there.
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

from tests.scale import SCALE

ROOT = Path(__file__).parent.parent
PAGES = ("README.md", "docs/your-model.md")
SKIP = ("make test", "make bench", "git clone")
"""Run elsewhere in CI, in full; a clone of a clone proves nothing."""
READY_SECONDS = 120
COMMAND_SECONDS = 3600
SMALL = "small.toml"
"""The embedded default's configuration with a policy of a few prompts and a short bake."""
OF_THE_WHEEL = {"make serve ": ".venv/bin/manners serve "}
SMALLER = {
    ".venv/bin/manners serve  ": f".venv/bin/manners serve --config {SMALL} ",
    ".venv/bin/manners gate run --candidate ": f".venv/bin/manners gate run --config {SMALL} --candidate ",
}
"""What stands for the beginning of a command at small counts."""


def commands(text: str) -> Iterator[str]:
    """The commands of every bash block; a backslash at a line's end goes on."""
    for block in re.findall(r"^```bash\n(.*?)^```", text, re.M | re.S):
        for line in re.sub(r"\\\n\s*", "", block).splitlines():
            if line.strip() and not line.startswith("#"):
                yield line


def replaced(command: str, beginnings: dict[str, str]) -> str:
    """The command with another beginning, if one of these is its own."""
    before = next(filter(command.startswith, beginnings), "")
    return beginnings.get(before, "") + command.removeprefix(before)


def install(folder: Path) -> None:
    """A wheel of what is committed, with the locked packages, in `.venv` of a folder."""
    uv = [sys.executable, "-m", "uv"]
    source, python = folder / "source", folder / ".venv" / "bin" / "python"
    for argv in (
        ["git", "clone", "-q", ROOT, source],
        [*uv, "build", "-q", "--wheel", "--out-dir", folder / "dist", source],
        ["rm", "-rf", source],
        [sys.executable, "-m", "venv", folder / ".venv"],
        [*uv, "pip", "install", "-q", "--python", python, "--no-deps", "--require-hashes", "-r", ROOT / "requirements/gateway.txt"],
    ):  # fmt: skip
        subprocess.run(argv, check=True)  # type: ignore[arg-type]
    (wheel,) = (folder / "dist").glob("*.whl")
    subprocess.run([*uv, "pip", "install", "-q", "--python", python, "--no-deps", wheel], check=True)


def write_small(folder: Path) -> None:
    """Write the configuration of small counts, of the wheel's own default."""
    (default,) = folder.glob(".venv/lib/python3*/site-packages/deploy/embedded.toml")
    text = default.read_text("utf-8")
    for own, small in (
        ('policy = "annie-nano"\n', f'policy = "{ROOT / "tests" / "readme.toml"}"\n'),
        ("bake_seconds = 60 ", "bake_seconds = 5 "),
        ('"../models/', f'"{default.parents[1]}/models/'),
    ):
        if own not in text:
            raise SystemExit(f"{default} no longer says {own}")
        text = text.replace(own, small)
    (folder / SMALL).write_text(text, "utf-8")


def start(command: str, folder: Path, environ: dict[str, str]) -> subprocess.Popen[str]:
    """Start a server, and read its output until it says that it is ready."""
    server = subprocess.Popen(
        ["bash", "-c", f"exec {command}"], cwd=folder, env=environ, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip
    assert server.stdout is not None
    deadline = time.monotonic() + READY_SECONDS
    for line in server.stdout:
        print(line, end="")
        if line.startswith("Ready:"):
            return server
        if time.monotonic() > deadline:
            break
    raise SystemExit(f"not ready within {READY_SECONDS} s")


def stop(server: subprocess.Popen[str]) -> None:
    server.send_signal(signal.SIGTERM)
    server.communicate(timeout=60)


def run_all(log: IO[str], folder: Path) -> int:
    """Run them in a folder, which is home, too; the number of failures."""
    failures, servers, environ = 0, [], {"PATH": os.environ["PATH"], "HOME": str(folder / "home")}
    install(folder)
    write_small(folder)
    text = "".join((ROOT / page).read_text("utf-8") for page in PAGES)
    for command in commands(text):
        if command.startswith(SKIP):
            continue
        print(f"$ {command}", file=log, flush=True)
        if command.startswith("make "):
            stop(start(command, ROOT, environ))
        command = replaced(command, OF_THE_WHEEL)
        command = replaced(command, SMALLER) if SCALE == "quick" else command
        if "# leave it running" in command:
            servers.append(start(command, folder, environ))
            continue
        code = subprocess.run(
            ["bash", "-o", "pipefail", "-c", command], cwd=folder, env=environ, timeout=COMMAND_SECONDS, check=False,
            stdin=subprocess.DEVNULL,
        ).returncode  # fmt: skip
        failures += code != 0
        print(f"  exit {code}", file=log, flush=True)
    for server in servers:
        stop(server)
    return failures


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        sys.exit(run_all(sys.stdout, Path(folder)))
