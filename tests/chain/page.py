"""`docs/chain.md`, written from the files of runs in `docs/chain`; and what must be true of a run."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from tests.chain.record import Figures

GATES: Final = ("leak", "raw_call", "empty", "no_markdown", "tools", "factual", "reasoning")
HEAD: Final = """\
# The whole chain

`make chain` runs it: a fine-tune, a quantization that the gate refuses, training with the quantization in place, the NVFP4
folder on a vLLM that the gateway starts, its gate, a promotion while callers stream, a bad engine that is let in by an
override and rolled back, a vLLM that is killed while llama.cpp's Q4_K_M of the same trained weights answers, and its return. Each
step is a command of `manners`, and its figures are in `docs/chain`, one file a run. This page is made of them:
`python -m tests.chain --page`.

**What the models are.** On a GPU, and in `cpu-thin`, the base is the shipped `annie-nano-thin-ptq` (6.8M, the study's thinnest
fine-tune of a stranger), read back from its Q2_K file; the fine-tune adds a few steps to it, and what the gate refuses is that in
Q2_K. Its F16, the baseline, leaks as well: the fine-tune is as much to blame as the rounding, and the training teaches what was
taught too little. In `cpu`, which CI runs, annie-nano is the base, each training is one step, which changes nothing, and the shipped thin
file stands in for the PTQ. It is no measurement of what rounding costs: that is in [docs/study](study/README.md).

**What is bad.** The bad engine is the trained model in NVFP4 on llama.cpp; no gate has judged it. While it serves, a stranger's
weights are written into the file that it has mapped.
"""


def checks(found: Figures) -> list[tuple[str, bool]]:
    """What a run must show; only of steps that are done."""
    steps, listed = found["steps"], []
    for name, wanted in (("gate: PTQ", False), ("gate: QAT on vLLM", True)):
        if gate := steps.get(name):
            listed.append((f"{name}: {gate['verdict']}", (gate["verdict"] == "pass") == wanted))
    if live := steps.get("live"):
        killed, streams = live["killed"], live["streams"][-1]
        listed += [
            (f"PTQ is not promoted: {live['refused']['code']}", live["refused"]["code"] == "verdict_not_pass"),
            ("QAT on vLLM is promoted", live["promoted"]["phase"] == "succeeded"),
            (f"the bad one is rolled back: {live['rolled back']['code']}",
             live["rolled back"]["phase"] == "rolled_back" and live["rolled back"]["live"] == "trained"),
            (f"{killed['answered by the fallback']} answered by Q4_K_M while vLLM is gone", killed["answered by the fallback"] > 0),
            (f"of {streams['streams']} streams {streams['lost']} lost", streams["lost"] == 0),
            (f"{streams['truncated']} truncated, all by the kill", streams["truncated"] == killed["truncated"]),
            ("the audit's chain holds", live["audit"]["chain holds"]),
        ]  # fmt: skip
    return listed


def write_page(runs: Path, page: Path) -> None:
    """Write it."""
    files = sorted(runs.glob("*.json"))
    parts = [HEAD, *(section(json.loads(path.read_text("utf-8")), path.name) for path in files)]
    page.write_text("\n".join(parts), "utf-8")


def section(found: Figures, file: str) -> str:
    """What the page says of one run, also of one that is not over."""
    machine, steps = found["machine"], found["steps"]
    where = machine["gpu"].split(",")[0] if found["device"] == "cuda" else "a CPU"
    packages = ", ".join(
        f"{name} {value}" for name, value in machine["packages"].items() if value != "not installed"
    )
    total = sum(step["seconds"] for step in steps.values())
    lines = [
        f"## {file.removesuffix('.json')}: on {where}, {machine['date']}", "",
        f"[{file}](chain/{file}); commit {machine['commit']}, Python {machine['python']}, {packages}. CPU: {machine['cpu']}; GPU: {machine['gpu'].replace(chr(10), '; ')}. "
        f"All steps: {total:.0f} s.", "",
        _served(found), "",
        *([found["note"], ""] if found.get("note") else []),
        *_models(steps), *_gates(steps), *_live(steps.get("live")), *_questions(steps),
    ]  # fmt: skip
    return "\n".join(lines) + "\n"


def _served(found: Figures) -> str:
    if found["device"] == "cuda":
        return "vLLM has the NVFP4 folder itself; its kernel is in the table of engines."
    return (
        "vLLM for CPUs cannot compute NVFP4: it has the folder's values in BF16 (`manners quantize export`), so the weights are "
        "rounded, and activations are not. llama.cpp reads the NVFP4 bytes themselves."
    )


def _table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> Iterator[str]:
    yield "| " + " | ".join(head) + " |"
    yield "|" + "---|" * len(head)
    for row in rows:
        yield "| " + " | ".join("" if cell is None else str(cell) for cell in row) + " |"
    yield ""


def _models(steps: dict[str, Figures]) -> Iterator[str]:
    yield "### The models"
    yield ""
    yield from _table(
        ("step", "seconds", "what came of it"),
        ((name, step["seconds"], _made(step)) for name, step in steps.items() if not name.startswith(("gate", "live", "thoughts"))),
    )  # fmt: skip


def _made(step: Figures) -> str:
    words = []
    if "recipe" in step:
        words.append(
            f"{step['steps']} steps of {step['tokens_a_step']} tokens at {step['lr']:g}, loss {step['loss_before']:.4f} to {step['loss_after']:.4f}"
        )
    if parity := step.get("parity"):
        words.append(f"equal logits at {parity['equal']} of {parity['tokens']} tokens")
    words += [f"{step[name]} {name}" for name in ("conversations", "layers", "findings") if name in step]
    if "format" in step:
        words.append(f"{step['format']}, {step['megabytes']} MB")
    if "root" in step:
        words.append(f"`{step['root'][:19]}…`")
    return "; ".join(words)


def _gates(steps: dict[str, Figures]) -> Iterator[str]:
    gates = {name.removeprefix("gate: "): step for name, step in steps.items() if name.startswith("gate: ")}
    if not gates:
        return
    yield "### The gates"
    yield ""
    yield "Bad replies of all that were judged, candidate / baseline. The baseline is the fine-tune in F16."
    yield ""
    yield from _table(
        ("candidate", "verdict", "seconds", "replies", *GATES),
        ((name, f"**{gate['verdict']}**", gate["seconds"], gate["samples"], *(_count(gate["tallies"], one) for one in GATES))
         for name, gate in gates.items()),
    )  # fmt: skip
    for name, gate in gates.items():
        if gate["why"]:
            yield f"* **{name}**: {'; '.join(gate['why'])}"
    yield ""
    yield "What computed, as the reports state it:"
    yield ""
    engines = {one["name"]: one for gate in gates.values() for one in gate["engines"]}
    yield from _table(
        ("engine", "build", "driver", "numerics", "arguments"),
        ((name, one["build"], one["driver"], _numerics(one), f"`{' '.join(one['argv'])}`") for name, one in engines.items()),
    )  # fmt: skip


def _count(tallies: dict[str, dict[str, list[int]]], gate: str) -> str:
    sides = [tallies.get(arm, {}).get(gate) for arm in ("candidate", "baseline")]
    return " / ".join("–" if side is None else f"{side[0]} of {side[1]}" for side in sides)


def _numerics(engine: dict[str, Any]) -> str:
    found = engine.get("numerics") or {}
    return ", ".join(f"{name} {value}" for name, value in found.items() if value) or "not known"


def _live(live: Figures | None) -> Iterator[str]:
    if live is None:
        return
    back, killed = live["rolled back"], live["killed"]
    yield "### Under load"
    yield ""
    yield f"* PTQ asks to be promoted: exit code {live['refused']['exit']}, `{live['refused']['code']}`."
    yield f"* QAT on vLLM is promoted in {live['promoted']['seconds']} s, vLLM's start and the bake included."
    yield (
        f"* The bad one, by an override of `report_missing`: {back['phase']} with `{back['code']}` after {back['seconds']} s; from the fault "
        f"to its last word {back['seconds from the fault to its last word']} s and {back['replies after the fault']} replies. Live is `{back['live']}` again."
    )
    yield (
        f"* vLLM's server is killed with {killed['streams open at the kill']} streams open: {killed['truncated']} truncated, {killed['lost']} lost. "
        f"Q4_K_M had answered after {killed['seconds until the fallback had answered']} s and gave {killed['answered by the fallback']} whole replies; "
        f"vLLM answered again after {killed['seconds until vLLM answered again']} s."
    )
    yield f"* The audit's chain of events {'holds' if live['audit']['chain holds'] else 'DOES NOT HOLD'}."
    yield ""
    yield from _table(
        ("streams opened while", "streams", "whole", "truncated", "lost", "first word, p50 ms", "p95 ms", "answered by"),
        ((one["name"], one["streams"], one["whole"], one["truncated"], one["lost"], one["p50"], one["p95"],
          ", ".join(f"{name} {count}" for name, count in one["by engine"].items())) for one in live["streams"]),
    )  # fmt: skip


def _questions(steps: dict[str, Figures]) -> Iterator[str]:
    thoughts = steps.get("thoughts")
    yield "### Three questions of the field notes"
    yield ""
    if (mine := steps.get("gate: QAT, Q4_K_M")) and (before := steps.get("gate: fine-tune, Q4_K_M")):
        yield "**Do QAT weights survive Q4_K_M?** " + _pair(
            "The QAT weights in Q4_K_M", mine, "the fine-tune in Q4_K_M", before
        )
        yield ""
    if (hard := steps.get("gate: PTQ, hardened prompt")) and (plain := steps.get("gate: PTQ")):
        yield "**Does a prompt alone close the gap?** " + _pair(
            "PTQ behind annie-hardened's rules", hard, "without them", plain
        )
        yield ""
    if thoughts is None:
        return
    yield f"**What does a no-think dose do?** {thoughts['questions']} questions with thinking on, at temperature 0, all on llama.cpp:"
    yield ""
    names = list(next(iter(thoughts["models"].values())))
    rows = ((name, *(one[key] for key in names)) for name, one in thoughts["models"].items())
    yield from _table(("model", *names), rows)


def _pair(first: str, mine: Figures, second: str, other: Figures) -> str:
    return f"{first}: {mine['verdict']}, {_bad(mine)}. {second[0].upper()}{second[1:]}: {other['verdict']}, {_bad(other)}."


def _bad(gate: Figures) -> str:
    counts = {name: gate["tallies"]["candidate"].get(name) for name in GATES}
    return ", ".join(f"{name} {count[0]} of {count[1]} bad" for name, count in counts.items() if count)
