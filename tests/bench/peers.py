"""Other people's gateways: a venv each, from pinned lists, from the package index only."""

import subprocess
import sys
from pathlib import Path

_HERE = Path(__file__).parent
_ROOT = _HERE.parent.parent / ".bench" / "peers"
NAMES = ("smg", "litellm")


def venv(name: str) -> Path:
    """Where a peer lives, installed or not."""
    return _ROOT / name


def install(name: str) -> None:
    """Make a peer's venv, unless it has this very list. Lists are complete: nothing is resolved.

    Raises:
        CalledProcessError: pip or venv failed.
    """
    folder = venv(name)
    listed, done = _HERE / f"requirements-{name}.txt", folder / "installed.txt"
    if done.exists() and done.read_bytes() == listed.read_bytes():
        return
    subprocess.run([sys.executable, "-m", "venv", "--clear", str(folder)], check=True)
    pip = [str(folder / "bin" / "python"), "-m", "pip", "install", "--quiet", "--no-deps"]
    subprocess.run([*pip, "--requirement", str(listed)], check=True)
    done.write_bytes(listed.read_bytes())


def output(command: list[str]) -> str:
    """What a short command prints, on either stream; empty if it cannot run."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return (done.stdout + done.stderr).strip()


def version(name: str, distribution: str) -> str:
    """The version of a distribution in a peer's venv."""
    code = f"from importlib.metadata import version; print(version({distribution!r}))"
    return output([str(venv(name) / "bin" / "python"), "-c", code])
