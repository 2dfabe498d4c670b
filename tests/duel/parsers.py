"""Replies on every cut through the parsers of vLLM, SGLang, transformers, smg and this gateway.

The corpus: the rows of tests/data/replies in the formats `qwen` and `hermes` (think tags and hermes calls, which all of
these parsers know), and the ordinary texts. Each peer runs in a process of the environment in which it is installed.
"""

import asyncio
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from tests import replies
from tests.bench.processes import Process
from tests.duel.worker import MARKERS
from tests.ports import free_port

PEERS = {
    "vllm": "vLLM (`hermes`, `qwen3`)",
    "sglang": "SGLang (`qwen25`, `qwen3`)",
    "transformers": "transformers (`response_template`)",
    "smg": "smg (`qwen`, `qwen3`)",
    "manners": "Manners",
}
FOREIGN = re.compile(r"<[/|A-Za-z_]|&lt;|\[/?[A-Z_]{4,}\]|[◁＜]")
LONGEST = 4096
"""Characters: some parsers take the square of a reply's length."""
Answer = list[Any] | None
Row = dict[str, Any]


def corpus() -> list[Row]:
    """Bank rows with what is expected of them, and ordinary texts, which are heard as written."""
    bank = [row for row in replies.rows("bank") if row["format"] in ("qwen", "hermes")]
    plain = [row for row in bank if not row["reasoning"] and not row["json_mode"]]
    out = [{**row, "text": row["content"]} for row in plain if len(row["content"]) <= LONGEST]
    for row in replies.rows("ordinary"):
        expect = {"speech": row["text"], "calls": [], "absent": [], "present": []}
        base = {
            "class": "ordinary",
            "format": "qwen",
            "json_mode": False,
            "tools": list(replies.DECLARATIONS),
        }
        out.append({**base, **row, "expect": expect})
    return out


def marked(row: Row) -> str:
    """own: the format's markers to the letter, and no others; none: no marker at all; foreign: all the rest."""
    rest = row["text"]
    for marker in MARKERS:
        rest = rest.replace(marker, "")
    return "foreign" if FOREIGN.search(rest) else "none" if rest == row["text"] else "own"


def run(python: str, site: Path, folder: Path, most: int) -> str:
    """The table. Answers are kept in `folder`: a peer whose file is there is not run again."""
    rows = corpus()
    for peer in PEERS:
        kept = folder / f"{peer}.jsonl"
        if not kept.exists():
            kept.write_text(_answers(peer, rows, python, site, folder, most), "utf-8")
    return table(rows, folder)


def _answers(peer: str, rows: list[Row], python: str, site: Path, folder: Path, most: int) -> str:
    lines = []
    for row in rows:
        thinks = row["class"] not in ("ordinary", "speech") and "think>" in row["text"]
        tools = [replies.DECLARATIONS[name] for name in row["tools"]]
        lines.append(
            json.dumps({**{k: row[k] for k in ("id", "text", "format")}, "thinks": thinks, "tools": tools})
        )
    path = str(Path.cwd()) if peer in ("manners", "smg") else f"{Path.cwd()}{os.pathsep}{site.resolve()}"
    with ExitStack() as stack:
        name = peer
        if peer == "smg":
            port = free_port()
            program = f"from smg.smg_rs import Router; Router(worker_urls=[], host='127.0.0.1', port={port}).start()"
            router = Process([sys.executable, "-c", program], folder / "smg.log", {"PYTHONPATH": str(site)})
            stack.callback(router.stop)
            name = f"smg:http://127.0.0.1:{port}"
            if why := asyncio.run(router.until_ready(f"http://127.0.0.1:{port}/liveness", 60)):
                raise SystemExit(f"smg {why}")
        command = [
            sys.executable if peer in ("manners", "smg") else python,
            "tests/duel/worker.py",
            name,
            str(most),
        ]
        environment = {**os.environ, "PYTHONPATH": path, "CUDA_VISIBLE_DEVICES": ""}
        ran = subprocess.run(
            command, input="\n".join(lines), stdout=subprocess.PIPE, text=True, env=environment, check=True
        )
    return ran.stdout


def table(rows: list[Row], folder: Path) -> str:
    """One row for each parser; of the columns with two numbers the first is of replies that are not streamed."""
    bank = [row for row in rows if row["class"] != "ordinary"]
    own, bare, foreign = ([r for r in bank if marked(r) == kind] for kind in ("own", "none", "foreign"))
    calls, bare_calls = ([r for r in of if r["expect"]["calls"]] for of in (own, bare))
    faults: list[tuple[str, list[Row], Callable[[Row, Answer], bool]]] = [
        ("secret heard, own markers", own, _hears),
        ("speech wrong, own markers", own, _misspeaks),
        ("call wrong, own markers", calls, _miscalls),
        ("call wrong, no markers", bare_calls, _miscalls),
        ("secret heard, foreign markers", foreign, _hears),
        ("ordinary text altered", [row for row in rows if row["class"] == "ordinary"], _misspeaks),
    ]
    heads = [f"depends on the cut, of {len(rows)}", *(f"{title}, of {len(of)}" for title, of, _ in faults)]
    lines = [
        "| parser | " + " | ".join([*heads, "breaks", "µs a chunk"]) + " |",
        "|---" * (len(heads) + 3) + "|",
    ]
    for peer, title in PEERS.items():
        kept = (folder / f"{peer}.jsonl").read_text("utf-8").splitlines()
        all_kept = {row["id"]: row for row in map(json.loads, kept)}
        got = {row["id"]: all_kept[row["id"]] for row in rows}
        streams = [row for row in got.values() if "pieces" in row]
        depends = sum(row["differing"] > 0 for row in streams)
        cost = 1e6 * sum(row["seconds"] for row in streams) / max(1, sum(row["pieces"] for row in streams))
        breaks = sum("error" in row for row in got.values())
        cells = [_counts(of, got, fault) for _, of, fault in faults]
        ends = (str(depends), f"{cost:.0f}") if streams else ("–", "–")
        lines.append("| " + " | ".join([title, ends[0], *cells, str(breaks), ends[1]]) + " |")
    return "\n".join(lines)


def _counts(rows: list[Row], got: dict[str, Row], fault: Callable[[Row, Answer], bool]) -> str:
    whole = sum(fault(row, got[row["id"]].get("whole")) for row in rows)
    streamed = [row for row in rows if not row.get("held")]
    if not any("streamed" in got[row["id"]] for row in streamed):
        return f"{whole}, –"
    return f"{whole}, {sum(fault(row, got[row['id']].get('streamed')) for row in streamed)}"


def _hears(row: Row, answer: Answer) -> bool:
    absent = [text for text in row["expect"]["absent"] if text not in MARKERS]
    return answer is not None and any(text in answer[0] for text in absent)


def _miscalls(row: Row, answer: Answer) -> bool:
    """Of a parser that breaks on a reply, the caller gets neither the call nor the speech."""
    try:
        made = [[name, json.loads(arguments or "{}")] for name, arguments in answer[2]] if answer else None
    except ValueError:
        return True
    return bool(made != row["expect"]["calls"])


def _misspeaks(row: Row, answer: Answer) -> bool:
    speech_only = {**row, "expect": {**row["expect"], "calls": None, "absent": []}}
    return answer is None or bool(replies.fault(speech_only, answer[0], []))
