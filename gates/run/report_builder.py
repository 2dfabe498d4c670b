"""A job's outcome as a statement, and the texts that its page shows. The ledger is read here; pure else."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from statistics import median
from typing import Final

from gates.artefact.manifest import Artefact
from gates.contracts.sample import Sample
from gates.policy.values import UNITS
from gates.reply.reply import Reply, read_reply
from gates.report import statement as stated
from gates.report.gather import distribution, failures, ledger, tallies
from gates.report.texts import Said, Texts
from gates.run.job import Judged
from gates.run.job_spec import BASELINE, CANDIDATE, GATEWAY, Job
from gates.run.ledger import Ledger
from gates.run.readings import Reading, differences, slope

_NEVER: Final[Mapping[str, float]] = {"ttft": float("inf"), "first_sentence": float("inf"), "decode": 0.0}
"""What a failed request counts as, by metric."""


def compose(
    job: Job,
    judged: Judged,
    book: Ledger,
    *,
    harness: stated.Harness,
    host: Mapping[str, str],
    now: datetime,
    data: tuple[stated.Pinned, ...] = (),
) -> stated.Statement:
    """Everything that the report states; `data` is what the suite was held against."""
    with book.path.open("rb") as lines:
        samples = ledger(lines, judged.scored.outcomes)
    return stated.Statement(
        candidate=stated.Arm(model_of(job.candidate.artefact), job.candidate.engine),
        baseline=stated.Arm(model_of(job.baseline.artefact), job.baseline.engine),
        suite=stated.Pinned(job.suite.name, job.suite.version, job.suite.digest),
        policy=stated.Pinned(job.policy.name, job.policy.version, job.policy.digest),
        harness=harness,
        host=host,
        decision=judged.decision,
        tallies=tallies(judged.scored.results),
        failures=failures(judged.scored.results),
        distributions=tuple(_distributions(judged.readings)),
        samples=samples,
        created=stated.stamp(now),
        ancestors=tuple(_ancestors(job)),
        data=data,
        speed=tuple(_speed(job, judged.readings)),
    )


def model_of(artefact: Artefact) -> stated.Model:
    """An artefact as a report speaks of it."""
    origin = artefact.provenance
    return stated.Model(artefact.name, artefact.format, artefact.root, origin.base_model, origin.parents)


def _ancestors(job: Job) -> Iterator[stated.Model]:
    """Those of the known artefacts that the two arms were made of, at any remove."""
    by_root = {artefact.root: artefact for artefact in job.known}
    arms = (job.candidate.artefact, job.baseline.artefact)
    seen, open_ = {artefact.root for artefact in arms}, [a for artefact in arms for a in _parents(artefact)]
    while open_:
        root = open_.pop()
        if root in by_root and root not in seen:
            seen.add(root)
            yield model_of(by_root[root])
            open_ += _parents(by_root[root])


def _parents(artefact: Artefact) -> list[str]:
    return list(artefact.provenance.parents.values())


def _distributions(taken: Iterable[Reading]) -> Iterator[stated.Distribution]:
    good = [reading for reading in taken if not reading.void]
    for metric, unit in UNITS.items():
        for arm in (CANDIDATE, BASELINE):
            values = [_value(r, metric) for r in good if r.arm == arm]
            known = [value for value in values if value is not None]
            if known:
                yield distribution(metric, arm, unit, known)


def _speed(job: Job, taken: tuple[Reading, ...]) -> Iterator[str]:
    """What time to first token depends on, in words."""
    regime = job.policy.speed.regime
    for arm in (CANDIDATE, BASELINE):
        if grown := slope(taken, arm, regime):
            yield (
                f"{arm}: {grown.per_1k:.1f} ms more to the first token for every 1,000 tokens of prompt "
                f"({grown.n} requests)"
            )
    if shares := differences(taken, GATEWAY, CANDIDATE, regime):
        yield (
            f"the gateway in between: {median(shares):+.1f} ms to the first token (median of {len(shares)} pairs; "
            "asked from its own process, so rather too much than too little)"
        )


def _value(reading: Reading, metric: str) -> float | None:
    if reading.failed:
        return _NEVER[metric]
    value: float | None = getattr(reading, metric)
    return value


# ------------------------------------------------------------------------------------------- texts


def texts(samples: Iterable[Sample]) -> Texts:
    """What was said in each case by each arm; of several repeats the first that the ledger holds."""
    said: dict[tuple[str, str], Said] = {}
    for sample in samples:
        said.setdefault((sample.key.case, sample.key.arm), Said(_prompt(sample), _spoken(read_reply(sample))))
    return lambda case, arm: said.get((case, arm))


def _prompt(sample: Sample) -> str:
    users = [m["content"] for m in sample.request["messages"] if m["role"] == "user"]
    return str(users[-1]) if users else ""


def _spoken(reply: Reply) -> str:
    calls = [f"{call.name}({call.arguments})" for call in reply.calls]
    thought = [f"[thought] {reply.reasoning}"] if reply.reasoning else []
    error = [f"[error] {reply.error.message}"] if reply.error else []
    return "\n".join([*thought, reply.content, *calls, *error]).strip()


def summary(statement: stated.Statement) -> str:
    """The verdict and every rule as JSON, for scripts."""
    decision = statement.decision
    rules = [
        {
            "gate": result.gate,
            "rule": result.rule,
            "tier": result.tier,
            "verdict": str(result.verdict),
            "n": result.n,
            "bad": result.bad,
            "estimate": result.estimate,
            "limit": result.limit,
            "sentence": result.sentence,
        }
        for result in decision.gates
    ]
    document = {
        "verdict": str(decision.verdict),
        "reasons": list(decision.reasons),
        "candidate": statement.candidate.model.root,
        "gates": rules,
        "controls": [{"name": c.name, "holds": c.holds, "sentence": c.sentence} for c in decision.controls],
    }
    return json.dumps(document, indent=2, ensure_ascii=False)
