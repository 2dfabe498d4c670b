"""The gate's side: its own runner and detectors over the same cases, through the same gateway."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from gates.contracts.case import Case, Suite
from gates.judge.score import failure_reason
from gates.reply.reply import read_reply
from gates.run.request import plan_requests
from gates.run.runner import run
from gates.run.sample_store import SampleStore, read_samples
from gates.run.target import Arm, Target
from tests.promptfoo.cases import MODEL, SIZES
from tests.promptfoo.peer import Judged


async def judge(suite: Suite, cases: Sequence[Case], url: str, folder: Path) -> Judged:
    """Every case streamed, and those of `tools` once more in one piece; bad if either was."""
    target = Target(url=url, served_model=MODEL, dialect="openai", artefact="gateway", engine="gateway")
    asks = plan_requests(replace(suite, cases=tuple(cases)), [Arm("gateway", target)])
    path = folder / "samples.jsonl"
    with SampleStore(path, suite=suite.digest) as book:
        tally = await run(asks, {"gateway": target}, book)
    assert tally.lost == 0, f"{tally.lost} answers were lost on the way"
    found: Judged = {}
    by_id = {case.id: case for case in cases}
    for sample in read_samples(path):
        case = by_id[sample.key.case]
        for gate in SIZES.keys() & set(case.gates):
            why = failure_reason(gate, case, read_reply(sample))
            found[case.id, gate] = found.get((case.id, gate)) or why
    return found
