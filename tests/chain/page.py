"""`docs/chain.md`, written from the files of runs in `docs/chain`; and what must be true of a run."""

import json
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final

from tests.chain.record import Figures

GATES: Final = ("leak", "raw_call", "empty", "no_markdown", "tools", "factual", "reasoning")
HEAD: Final = """\
# The whole chain

`make chain` runs every step from a fine-tune to a served model, each as a command of `manners`:

1. fine-tune a model, and quantize it without training (PTQ): the gate must refuse the result;
2. train with the quantization in place (QAT), gate the result on a vLLM that the gateway starts, and promote it while callers stream;
3. let a bad engine in by an override: the gateway must roll it back;
4. kill vLLM: llama.cpp must answer with the same weights in Q4_K_M until vLLM is back.

`python -m tests.chain --page` writes this page from the files of runs in `docs/chain`. Those have every figure: steps, losses, digests, the reasons
of each verdict, engines with their arguments, streams by phase, and what a dose of no-think examples does.

**The models.** In `h100` and `cpu-thin` the base is the shipped `annie-nano-thin-ptq` (6.8M), read back from its Q2_K file. The fine-tune
adds a few steps, and the gate refuses it in Q2_K. The baseline, its F16, leaks as well: the fine-tune is as much to blame as the
rounding. In `cpu`, which CI runs, annie-nano is the base, each training is one step, which changes nothing, and the shipped thin file
stands in for the PTQ. What rounding costs: [docs/study](study/README.md).

On a GPU vLLM has the NVFP4 folder itself. On a CPU it cannot compute NVFP4: it has the folder's values in BF16 (`manners quantize export`), so that
weights are rounded and activations are not.

**The bad engine** is the trained model in NVFP4 on llama.cpp, which no gate has judged. While it serves, the test writes a stranger's weights
into the file that it has mapped.

**Two questions** (asked at commit 7089cfa7, as was `cpu-thin`) are answered by the gates: whether QAT weights survive Q4_K_M ("QAT, Q4_K_M" beside
"fine-tune, Q4_K_M"), and whether a prompt alone closes the gap ("PTQ, hardened prompt" beside "PTQ").
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
    total = sum(step["seconds"] for step in steps.values())
    packages = machine["packages"].items()
    vllm = ", ".join(
        f"{name} {value}" for name, value in packages if name.startswith("vllm") and value != "not installed"
    )
    lines = [
        f"## {file.removesuffix('.json')}: on {where}, {machine['date']}", "",
        f"[{file}](chain/{file}); commit {machine['commit']}, {vllm}, {machine['cpu']}. All steps: {total:.0f} s.", "",
        *([found["note"], ""] if found.get("note") else []),
        *_gates(steps), *_live(steps.get("live")), *_thoughts(steps.get("thoughts") if found["device"] == "cuda" else None),
    ]  # fmt: skip
    return "\n".join(lines) + "\n"


def _table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> Iterator[str]:
    yield "| " + " | ".join(head) + " |"
    yield "|" + "---|" * len(head)
    for row in rows:
        yield "| " + " | ".join("" if cell is None else str(cell) for cell in row) + " |"
    yield ""


def _gates(steps: dict[str, Figures]) -> Iterator[str]:
    gates = {name.removeprefix("gate: "): step for name, step in steps.items() if name.startswith("gate: ")}
    if not gates:
        return
    yield "### The gates"
    yield ""
    yield "Bad replies / judged replies, of the candidate and of the baseline (the fine-tune in F16)."
    yield ""
    yield from _table(
        ("candidate", "verdict", *GATES),
        ((name, f"**{gate['verdict']}**", *(_count(gate["tallies"], one) for one in GATES)) for name, gate in gates.items()),
    )  # fmt: skip


def _count(tallies: dict[str, dict[str, list[int]]], gate: str) -> str:
    sides = [tallies.get(arm, {}).get(gate) for arm in ("candidate", "baseline")]
    return ", ".join("–" if side is None else f"{side[0]}/{side[1]}" for side in sides)


def _live(live: Figures | None) -> Iterator[str]:
    if live is None:
        return
    back, killed = live["rolled back"], live["killed"]
    yield "### Under load"
    yield ""
    yield f"* Promoting PTQ is refused: exit code {live['refused']['exit']}, `{live['refused']['code']}`."
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
    everything = live["streams"][-1]
    yield (
        f"* Of {everything['streams']} streams in all, {everything['whole']} came whole, {everything['truncated']} truncated, {everything['lost']} lost; "
        f"first word after {everything['p50']} ms at the median, {everything['p95']} ms at the 95th percentile."
    )
    yield f"* The audit's chain of events {'holds' if live['audit']['chain holds'] else 'DOES NOT HOLD'}."
    yield ""


def _thoughts(thoughts: Figures | None) -> Iterator[str]:
    if thoughts is None:
        return
    yield f"### What a dose of no-think examples does: {thoughts['questions']} questions with thinking on, temperature 0, on llama.cpp"
    yield ""
    names = list(next(iter(thoughts["models"].values())))
    rows = ((name, *(one[key] for key in names)) for name, one in thoughts["models"].items())
    yield from _table(("model", *names), rows)
