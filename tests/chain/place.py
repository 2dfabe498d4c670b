"""The chain's folder: models, data, configuration, and the commands of Manners that are run in it."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from gates.report.keys import PRIVATE, PUBLIC, load_or_make
from tests.chain import voice
from tests.chain.settings import ROOT, SPARE, TUNED, Setting
from tests.demo import place as demo
from tests.ports import free_port


class ChainError(Exception):
    """The chain cannot go on; the message is one line."""


class Place:
    """Files of one run under `base`."""

    def __init__(self, base: Path, setting: Setting) -> None:
        self.base, self.setting = base.absolute(), setting
        self.models, self.logs = self.base / "models", self.base / "logs"
        self.config = self.base / "chain.toml"
        for folder in (self.models, self.logs):
            folder.mkdir(parents=True, exist_ok=True)
        self.url, self.admin = (f"http://127.0.0.1:{port}" for port in (free_port(), free_port()))
        self.suite, self.policy = self.base / "demo.toml", setting.policy or str(demo.POLICY)
        if setting.policy is None:
            demo.write_suite(self.base)
        else:
            self.suite = self.base / "voice.jsonl"
            voice.write_suite(self.suite)

    # ---------------------------------------------------------------------------------- commands

    @property
    def environment(self) -> Mapping[str, str]:
        """This process's, with the repository to be imported first."""
        path = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
        return {**os.environ, "PYTHONPATH": os.pathsep.join(path), "COLUMNS": "120"}

    def command(self, *words: str | Path) -> list[str]:
        """`manners …`."""
        return [sys.executable, "-m", "app", *map(str, words)]

    def run(self, log: str, *words: str | Path, allowed: tuple[int, ...] = (0,)) -> tuple[int, str, str]:
        """A command to its end: its exit code and what it wrote. Raises ChainError for a code that is not `allowed`."""
        done = subprocess.run(
            self.command(*words), env=dict(self.environment), cwd=self.base, capture_output=True, text=True
        )
        (self.logs / f"{log}.log").write_text(done.stdout + done.stderr, "utf-8")
        if done.returncode not in allowed:
            last = (done.stderr or done.stdout).strip().splitlines()[-1:] or ["it wrote nothing"]
            raise ChainError(f"{log}: manners {words[0]} {words[1]} ended with {done.returncode}: {last[0]}")
        return done.returncode, done.stdout, done.stderr

    def made(self, out: Path, *words: str | Path, json_out: bool = True) -> dict[str, Any]:
        """Remove the folder and make it by a command of `manners quantize`; the command's JSON."""
        shutil.rmtree(out, ignore_errors=True)
        flags = ("--json",) if json_out else ()
        _, said, _ = self.run(out.name, "quantize", *words, "--out", out, *flags)
        return dict(json.loads(said)) if json_out else {}

    # -------------------------------------------------------------------------------- configuration

    def configure(self) -> None:
        """Write the configuration: the engines whose folders are there."""
        ports = [url.rpartition(":")[2] for url in (self.url, self.admin)]
        names = [name for name in self.setting.folders if (self.served(name) / "artefact.json").exists()]
        engines = "".join(map(self._engine, names))
        live = f'[models.annie]\nlive = "{TUNED}"\nfallback = {json.dumps([SPARE] if SPARE in names else [])}\nconcurrency = 16\n'
        text = CONFIG.format(port=ports[0], admin=ports[1], base=self.base, engines=engines, models=live,
                             suite=self.suite, policy=self.policy, bake=self.setting.bake)  # fmt: skip
        self.config.write_text(text, "utf-8")
        load_or_make(self.base / "state" / "keys")

    def own_config(self, name: str) -> Path:
        """The configuration with a state folder of its own and this host's key: gates can run beside one another."""
        state, own = self.base / "state", self.base / f"state-{name}"
        (own / "keys").mkdir(parents=True, exist_ok=True)
        for file in (PRIVATE, PUBLIC):  # not the folder: it may hold drafts
            shutil.copy(state / "keys" / file, own / "keys" / file)
        path = self.base / f"{name}.toml"
        path.write_text(self.config.read_text("utf-8").replace(f'"{state}"', f'"{own}"'), "utf-8")
        return path

    def served(self, engine: str) -> Path:
        """The folder of an engine of the chain."""
        return self.models / self.setting.folders[engine]

    def _engine(self, name: str) -> str:
        path = self.served(name)
        if (path / "config.json").exists():
            return self.vllm(name, path)
        return LLAMA.format(name=name, folder=path, threads=self.setting.threads)

    def vllm(self, name: str, folder: Path) -> str:
        """The table of a vLLM of ours, by the process driver."""
        setting = self.setting
        env = dict(setting.vllm_env) | ({"PYTHONPATH": setting.vllm_path} if setting.vllm_path else {})
        pairs = ", ".join(f"{key} = {json.dumps(value)}" for key, value in env.items())
        return VLLM.format(name=name, folder=folder, command=json.dumps(setting.vllm_command), args=json.dumps(setting.vllm_args),
                           gpu="all" if setting.cuda else "none", env=pairs)  # fmt: skip


CONFIG: Final = """\
[gateway]
listen = "127.0.0.1:{port}"
admin = "127.0.0.1:{admin}"
state = "{base}/state"
{engines}
{models}
[gates]
suite = "{suite}"
policy = "{policy}"

[promotion]              # short
warm_tokens = [50]
warm_at_once = [2]
bake_slow_factor = 100.0 # a vLLM on a CPU begins later than a llama.cpp by far
bake_seconds = {bake}
"""
LLAMA: Final = """
[engines.{name}]
dialect = "llama-server"
driver = "embedded"
artefact = "{folder}"
args = ["--ctx-size", "4096", "--threads", "{threads}"]
"""
VLLM: Final = """
[engines.{name}]
dialect = "vllm"
driver = "process"
artefact = "{folder}"
command = {command}
args = {args}
gpu = "{gpu}"
env = {{ {env} }}
"""
