"""How fast the engine of reference serves a folder: seconds until it answers, and tokens/s by streams.

    python -m quantizer.experiments.bench.reference_speed FOLDER --out FILE.json [--streams 1 16] [--tokens 32]

Written after each measurement, so that a run that is cut off keeps what it has. Exit code 1: it did not answer all.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

from quantizer.experiments.bench.ports import free_port

ASKED: Final = "Question {}: what is the weather like where you are?"
PATIENCE: Final = 300.0
"""Seconds for a start, and for an answer."""


def measure(folder: Path, out: Path, streams: Sequence[int], tokens: int) -> dict[str, Any]:
    """Start the engine, ask it, end it. Raises RuntimeError: it ended by itself, or did not start."""
    found: dict[str, Any] = {"folder": folder.name, "tokens": tokens}
    port = free_port()
    serve = f"-m app quantize serve --name m --port {port}"
    words = [sys.executable, *serve.split(), str(folder)]
    with out.with_suffix(".log").open("wb") as log:
        process = subprocess.Popen(words, stdout=log, stderr=log)
        try:
            began = time.monotonic()
            _first(process, port)
            found["start_seconds"] = round(time.monotonic() - began, 1)
            _write(out, found)
            for count in streams:
                found[f"streams_{count}"] = _together(port, count, tokens)
                _write(out, found)
        finally:
            process.terminate()
            process.wait()
    return found


def _first(process: subprocess.Popen[bytes], port: int) -> None:
    """Wait until it answers."""
    until = time.monotonic() + PATIENCE
    while True:
        try:
            _ask(port, 0, 1)
            return
        except urllib.error.HTTPError as why:
            raise RuntimeError(f"the engine answers {why.code}: {why.read(500)!r}") from None
        except OSError as why:
            if process.poll() is not None or time.monotonic() > until:
                raise RuntimeError(f"the engine did not start: {why}") from None
        time.sleep(0.5)


def _together(port: int, count: int, tokens: int) -> dict[str, Any]:
    """So many requests at once."""
    began = time.monotonic()
    with ThreadPoolExecutor(count) as pool:
        made = list(pool.map(lambda number: _ask(port, number, tokens), range(count)))
    seconds = time.monotonic() - began
    return {
        "seconds": round(seconds, 2),
        "tokens": sum(made),
        "tokens_per_second": round(sum(made) / seconds, 1),
    }


def _ask(port: int, number: int, tokens: int) -> int:
    """One chat; how many tokens came."""
    body = {
        "model": "m",
        "messages": [{"role": "user", "content": ASKED.format(number)}],
        "max_tokens": tokens,
        "temperature": 0,
    }
    request = urllib.request.Request(f"http://127.0.0.1:{port}/v1/chat/completions", json.dumps(body).encode(),
                                     {"content-type": "application/json"})  # fmt: skip
    with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
        said: dict[str, Any] = json.load(answer)
    return int(said["usage"]["completion_tokens"])


def _write(out: Path, found: dict[str, Any]) -> None:
    draft = out.with_suffix(".draft")
    draft.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    draft.replace(out)


def main(arguments: list[str] | None = None) -> int:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="python -m quantizer.experiments.bench.reference_speed",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    option = parser.add_argument
    option("folder", type=Path)
    option("--out", type=Path, required=True, metavar="FILE.json")
    option("--streams", type=int, nargs="+", default=[1, 16], metavar="N", help="default: %(default)s")
    option("--tokens", type=int, default=32, metavar="N", help="of each answer (default: %(default)s)")
    given = parser.parse_args(arguments)
    given.out.parent.mkdir(parents=True, exist_ok=True)
    try:
        print(json.dumps(measure(given.folder, given.out, given.streams, given.tokens)))
    except (RuntimeError, OSError) as why:
        print(f"reference_speed: {why}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
