"""`python -m tests.fuzz [--seconds N] [--without TARGET] [--keep FOLDER] [TARGET…]`: fuzz each target for N seconds.

Prints a table and exits with 1 if anything was found; the input that showed it stays in FOLDER. The
corpus in the repository is read only (`python -m tests.fuzz.worker TARGET -merge=1 NEW OLD…` makes the smallest one of several). Needs atheris: `make fuzz` installs it.
"""

import argparse
import importlib.util
import multiprocessing
import re
import sys
import tempfile
from pathlib import Path

from tests.fuzz.targets import TARGETS
from tests.fuzz.worker import fuzz_forked, target_of

CORPUS = Path(__file__).parent / "corpus"
FOUND = Path(__file__).parent / "found"
NAMES = (*TARGETS, "safetensors")
TIMEOUT = 120
"""Seconds for one input, for what never ends: work is bounded by counting, and a busy machine is slow."""
MEMORY = 2048  # MiB
CONTEXT = multiprocessing.get_context("forkserver")
CONTEXT.set_forkserver_preload(["tests.fuzz.instrumented"])


HEADER = f"{'target':<12}{'runs':>12}{'edges':>8}{'corpus':>8}{'findings':>10}"


def fuzz(name: str, seconds: int, keep: Path, seed: int = 0) -> str:
    """Fuzz one target to its end or the first finding, which is returned; prints its row. What is new is kept beside the findings, not
    in the repository. Seed 0: another one each time.
    """
    found, fresh = keep / "findings" / name, keep / "corpus" / name
    for folder in (found, fresh, CORPUS / name):
        folder.mkdir(parents=True, exist_ok=True)
    options = [f"-max_total_time={seconds}", f"-artifact_prefix={found}/", f"-seed={seed}"]
    options += ["-print_final_stats=1", "-use_value_profile=1"]
    said = _worker(name, options, [fresh, CORPUS / name, *FOUND.glob(name)], seconds + 300)
    place, runs = re.search(r"Test unit written to (\S+)", said), r"stat::number_of_executed_units: (\d+)"
    finding = ""
    if place or not re.search(runs, said):
        finding = f"\n  {place[1] if place else 'no input was kept'}\n    {_why(said)}"
    edges, corpus = (_last(rf"{word}: (\d+)", said) for word in ("cov", "corp"))
    print(f"{name:<12}{_last(runs, said):>12,}{edges:>8}{corpus:>8}{bool(finding):>10}{finding}", flush=True)
    return finding


def _why(said: str) -> str:
    """What a target raised, and where; else the last that its worker said."""
    found = re.search(r"=== Uncaught Python exception: ===\n(.*?)(?:\n\n|\n==|\Z)", said, re.DOTALL)
    if found is None:
        return "\n".join(said.splitlines()[-20:])
    lines = found[1].splitlines()
    return f"{lines[0][:600]} {' '.join(line.strip() for line in lines[-2:])[:300]}"


def _worker(name: str, options: list[str], folders: list[Path], limit: float) -> str:
    """What the worker said."""
    target = target_of(name)
    with tempfile.TemporaryDirectory() as folder:
        words, log = Path(folder) / "words.dict", Path(folder) / "said"
        words.write_text("".join(f'"{_escaped(word)}"\n' for word in target.words), "utf-8")
        own = [
            f"-max_len={target.longest}",
            f"-timeout={TIMEOUT}",
            f"-report_slow_units={TIMEOUT}",
            f"-rss_limit_mb={MEMORY}",
            *([f"-dict={words}"] if target.words else ()),
        ]
        arguments = (name, [*own, *options, *map(str, folders)], str(log))
        process = CONTEXT.Process(target=fuzz_forked, args=arguments)
        process.start()
        process.join(limit)
        if process.is_alive():
            process.kill()
            raise TimeoutError(f"{name}: still there after {limit:.0f} s")
        return log.read_text("utf-8", "replace")


def _escaped(word: bytes) -> str:
    return "".join(chr(b) if 32 <= b < 127 and b not in b'"\\' else f"\\x{b:02x}" for b in word)


def _last(pattern: str, text: str) -> int:
    found = re.findall(pattern, text)
    return int(found[-1]) if found else 0


def main() -> int:
    """Fuzz the targets one after the other."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("targets", nargs="*", metavar="TARGET", help=", ".join(NAMES))
    parser.add_argument("--seconds", type=int, default=60, help="for each target")
    parser.add_argument("--seed", type=int, default=0, help="of the random choices; 0: another each time")
    parser.add_argument("--keep", type=Path, default=Path(".work/fuzz"), help="findings and new corpus")
    parser.add_argument(
        "--without", action="append", default=[], choices=NAMES, metavar="TARGET", help="leave it out"
    )
    options = parser.parse_args()
    if unknown := sorted({*options.targets} - set(NAMES)):
        parser.error(f"{unknown[0]}: no such target; there are {', '.join(NAMES)}")
    keep = options.keep.resolve()
    names = options.targets or list(TARGETS)
    if not options.targets and importlib.util.find_spec("torch") is not None:
        names.append("safetensors")  # its reader is the quantizer's
    print(HEADER, flush=True)
    found = [fuzz(one, options.seconds, keep, options.seed) for one in names if one not in options.without]
    return int(any(found))


if __name__ == "__main__":
    sys.exit(main())
