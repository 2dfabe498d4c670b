"""The demo's place: a folder with a short suite, a configuration, and a candidate that may be spoiled."""

import json
import shutil
from collections import Counter
from pathlib import Path
from typing import Final

from gates.suite.load import FILES
from tests.ports import free_port

MODELS: Final = Path(__file__).parents[2] / "models"
POLICY: Final = Path(__file__).parent / "policy.toml"

LIVE: Final = "annie-nano"
CANDIDATE: Final = "annie-nano-nvfp4"
FOLDERS: Final = {
    LIVE: "annie-nano-q4_k_m",
    "stranger-nano": "stranger-nano-q4_k_m",
    "annie-nano-thin-ptq": "annie-nano-thin-ptq",
    CANDIDATE: "annie-nano-nvfp4",
}
"""Engines by name, and the folder of each."""

PROMPTS: Final = 16
"""Of every gate that decides, at least; the policy counts on it."""
NAMED: Final = 8
"""Cases that stay named: the canary asks them."""
_DECIDE: Final = ("leak", "raw_call", "empty", "tools", "no_markdown", "factual", "reasoning")

BAKE_SECONDS: Final = 60

CONFIG: Final = """\
[gateway]
listen = "127.0.0.1:{port}"
admin = "127.0.0.1:{admin}"
state = "{base}/state"
{engines}
[models.annie]
live = "{live}"
concurrency = 16

[gates]
suite = "{base}/demo.toml"
policy = "{policy}"

[promotion]              # short, as this is to be watched
warm_tokens = [50]
warm_at_once = [2]
bake_slow_factor = 100.0
bake_seconds = {bake}
"""
ENGINE: Final = """
[engines.{name}]
dialect = "llama-server"
driver = "embedded"
artefact = "{folder}"
args = ["--ctx-size", "4096"]
"""


class Place:
    """Files of one run of the demo under `base`, an empty folder."""

    def __init__(self, base: Path) -> None:
        self.base = base
        self.config = base / "demo-manners.toml"
        self.url, self.admin = (f"http://127.0.0.1:{port}" for port in (free_port(), free_port()))
        self.candidate = base / "weights" / CANDIDATE
        shutil.copytree(MODELS / FOLDERS[CANDIDATE], self.candidate)
        self.engines = {name: MODELS / folder for name, folder in FOLDERS.items()}
        self.engines[CANDIDATE] = self.candidate
        write_suite(base)
        self._write_config()

    def _write_config(self) -> None:
        engines = "".join(
            ENGINE.format(name=name, folder=folder)
            for name, folder in self.engines.items()
            if folder.is_dir()
        )
        ports = [url.rpartition(":")[2] for url in (self.url, self.admin)]
        text = CONFIG.format(
            port=ports[0], admin=ports[1], base=self.base, engines=engines, live=LIVE, policy=POLICY,
            bake=BAKE_SECONDS,
        )  # fmt: skip
        self.config.write_text(text, "utf-8")


def write_suite(base: Path) -> None:
    """Write the short suite: `demo.toml`, and its cases."""
    head = (FILES.folder / "annie-nano.toml").read_text("utf-8")
    head = head[head.index("[sampling]") :]
    words = 'name = "demo"\nversion = 1\ndescription = "A cut of annie-nano, to be watched."\n'
    (base / "demo.toml").write_text(f'{words}cases = ["demo.jsonl"]\n\n{head}', "utf-8")
    lines = (FILES.folder / "annie-nano.jsonl").read_text("utf-8").splitlines()
    kept = cut([json.loads(line) for line in lines])
    (base / "demo.jsonl").write_text("".join(json.dumps(case) + "\n" for case in kept), "utf-8")


def cut(cases: list[dict[str, object]]) -> list[dict[str, object]]:
    """Cases of the first stage, from all over the suite, until every gate that decides has enough of them."""
    first = [dict(case) for case in cases if case["stage"] == 1]
    spread = sorted(
        range(len(first)), key=lambda i: (i * 7919) % len(first)
    )  # a fixed shuffle: 7919 is prime
    have: Counter[str] = Counter()
    kept = []
    for i in spread:
        gates = [gate for gate in first[i]["gates"] if gate in _DECIDE]  # type: ignore[attr-defined]
        if any(have[gate] < PROMPTS for gate in gates):
            have.update(gates)
            kept.append(i)
    named = [i for i in kept if first[i].get("named")][NAMED:]
    for i in named:
        del first[i]["named"]
    return [first[i] for i in sorted(kept)]
