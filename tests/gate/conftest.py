"""The gate as a stranger runs it: the command, real llama.cpp servers, the shipped models and suite.

Run by `make test-gate`; a run asks thousands of prompts, so `make test` leaves these out.
"""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pytest

from gates.report.files import open_report
from gates.report.keys import trusted
from gates.report.statement import Statement
from tests.scale import scaled

ROOT = Path(__file__).parents[2]
MODELS = ROOT / "models"
BAD = {
    "stranger": {"leak", "tools", "no_markdown"},
    "thinks": {"leak"},
    "thin": {"leak"},
}
"""Candidates that must fail, and the gates of which one at least must be why."""
POLICY = scaled("annie-nano-short", "annie-nano")
"""The whole suite takes four times as long as a part of it, by which bad candidates fail already. At night it is asked
whole, with the README's commands, too."""
COMMAND = [sys.executable, "-m", "app", "gate"]

CONFIG = """
[gateway]
state = "{state}"

[engines.baseline]
dialect = "llama-server"
driver = "embedded"
artefact = "{models}/annie-nano-f16"

[engines.annie]
dialect = "llama-server"
driver = "embedded"
artefact = "{models}/annie-nano-q4_k_m"

[engines.thinks]                # her template always opens a thought
dialect = "llama-server"
driver = "embedded"
artefact = "{models}/annie-nano-q4_k_m"
args = ["--chat-template-file", "{template}"]

[engines.thin]                  # a Q2_K file of a thin fine-tune
dialect = "llama-server"
driver = "embedded"
artefact = "{models}/annie-nano-thin-ptq"

[engines.stranger]
dialect = "llama-server"
driver = "embedded"
artefact = "{models}/stranger-nano-q4_k_m"

[models.annie]
live = "baseline"

[gates]
suite = "annie-nano"
policy = "annie-nano"
controls = {{ stranger = "stranger" }}
"""


@dataclass(frozen=True)
class Ended:
    """A run that ended: its exit code, what it said, and the report that it signed."""

    code: int
    said: str
    out: Path
    statement: Statement

    @property
    def failed(self) -> set[str]:
        """The gates that a deciding rule failed."""
        return {r.gate for r in self.statement.decision.gates if r.verdict == "fail" and r.tier != "advisory"}


class House:
    """A state folder with a key, a configuration, and where runs go."""

    def __init__(self, base: Path) -> None:
        self.base, self.state = base, base / "state"
        self.config = base / "gate.toml"
        template = (MODELS / "annie-nano-hf" / "chat_template.jinja").read_text("utf-8")
        always = template.replace("enable_thinking is defined and enable_thinking is true", "true")
        assert always != template
        (base / "always.jinja").write_text(always, "utf-8")
        self.config.write_text(
            CONFIG.format(state=self.state, models=MODELS, template=base / "always.jinja"),
            "utf-8",
        )

    def argv(self, candidate: str) -> list[str]:
        """The command of a run."""
        where = ["--config", str(self.config), "--out", str(self.base / candidate)]
        return [
            *COMMAND,
            "run",
            "--candidate",
            candidate,
            "--baseline",
            "baseline",
            "--policy",
            POLICY,
            *(["--attach", str(ROOT / "pyproject.toml")] if candidate == "annie" else []),
            *(["--any-baseline"] if candidate in BAD else []),
            *where,
        ]

    def run(self, candidate: str) -> Ended:
        """A run, from wherever it was left to its end."""
        done = subprocess.run(self.argv(candidate), capture_output=True, text=True, timeout=1500, cwd=ROOT)
        out = self.base / candidate
        assert (out / "report.json").exists(), done.stderr[-2000:]
        opened = open_report(out / "report.json", trusted([self.state / "keys"]))
        return Ended(done.returncode, done.stdout + done.stderr, out, opened.statement)

    def begin_and_kill(self, candidate: str, samples: int) -> int:
        """Begin a run and kill it with SIGKILL once so many samples are on file; how many there are."""
        book = self.base / candidate / "samples.jsonl"
        child = subprocess.Popen(
            self.argv(candidate), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=ROOT
        )
        end = time.monotonic() + 900
        while not book.exists() or book.read_bytes().count(b"\n") < samples:
            assert child.poll() is None and time.monotonic() < end, "the run ended before it could be killed"
            time.sleep(0.2)
        os.kill(child.pid, signal.SIGKILL)
        child.wait()
        return book.read_bytes().count(b"\n")

    def verify(self, report: Path, *more: str) -> subprocess.CompletedProcess[str]:
        """`manners gate verify`."""
        argv = [*COMMAND, "verify", str(report), "--config", str(self.config), *more]
        return subprocess.run(argv, capture_output=True, text=True, timeout=120, cwd=ROOT)


@pytest.fixture(scope="session")
def house(tmp_path_factory: pytest.TempPathFactory) -> House:
    """One for all runs."""
    return House(tmp_path_factory.mktemp("gate"))


@pytest.fixture(scope="session")
def ran(house: House) -> Iterator[Callable[[str], Ended]]:
    """A bad candidate's run, made once: two at a time, as none of them comes as far as to be timed."""
    with ThreadPoolExecutor(2) as pool:
        runs = {candidate: pool.submit(house.run, candidate) for candidate in BAD}
        yield lambda candidate: runs[candidate].result()
