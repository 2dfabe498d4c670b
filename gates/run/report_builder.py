"""Builds the report's statement, and the texts on its page, from a job's result. Reads the sample store."""

import hashlib
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from typing import Any, Final

from gates.artefact.artefact import ModelIdentity, ancestors
from gates.contracts.sample import Sample
from gates.contracts.verdict import CaseResult, Decision, Outcome
from gates.decode.decoder import encode
from gates.reply.reply import Reply, read_heard, read_reply
from gates.report import statement as stated
from gates.report.labels import PromptAndReply, Texts
from gates.report.statement import CaseFailure, GateTally, SampleEntry, SampleIndex
from gates.run.job import GateJob, JobResult, ServedModel
from gates.run.sample_store import SampleStore

MAX_WHY: Final = 240  # characters of evidence; the whole reply is in samples.jsonl


def tallies(results: Mapping[str, Iterable[CaseResult]]) -> tuple[GateTally, ...]:
    """The number of ok, bad and lost cases per gate and arm, over all cases and over the named ones."""
    counts: dict[tuple[str, str, bool], Counter[Outcome]] = {}
    for arm, cases in results.items():
        for case in cases:
            for named in (False, True) if case.named else (False,):
                counts.setdefault((case.gate, arm, named), Counter())[case.outcome] += 1
    return tuple(GateTally(*key, c["ok"], c["bad"], c["lost"]) for key, c in counts.items())


def failures(results: Mapping[str, Iterable[CaseResult]]) -> tuple[CaseFailure, ...]:
    """Every case that was not ok, with its evidence on one line of at most `MAX_WHY` characters."""
    return tuple(
        CaseFailure(case.gate, arm, case.case, case.outcome, case.named, one_line(case.why))
        for arm, cases in results.items()
        for case in cases
        if case.outcome != "ok"
    )


def one_line(text: str) -> str:
    """Evidence on one line of at most `MAX_WHY` characters. It quotes a model's output, which may not be valid UTF-8."""
    line = " ".join(text.encode("utf-8", "replace").decode().split())
    return line if len(line) <= MAX_WHY else line[: MAX_WHY - 1] + "…"


def sample_index(lines: Iterable[bytes], outcomes: Mapping[str, Outcome]) -> SampleIndex:
    """The index of a run's samples file, with each sample's worst outcome; unjudged samples are "ok" unless they have a fault."""
    whole, found = hashlib.sha256(), list[SampleEntry]()
    for data in lines:
        whole.update(data)
        line = json.loads(data)
        outcome = outcomes.get(line["id"]) or ("lost" if line["fault"] else "ok")
        key, digest = line["key"], hashlib.sha256(data).hexdigest()
        found.append(SampleEntry(line["id"], key["case"], key["arm"], outcome, digest))
    return SampleIndex(f"sha256:{whole.hexdigest()}", tuple(found))


def build_statement(
    job: GateJob,
    judged: JobResult,
    store: SampleStore,
    *,
    harness: stated.Harness,
    host: Mapping[str, str],
    now: datetime,
    data: tuple[stated.Pinned, ...] = (),
    attachments: tuple[stated.Attachment, ...] = (),
) -> stated.Statement:
    """Everything that the report states; `data` are the files in which the suite was searched for."""
    with store.path.open("rb") as lines:
        samples = sample_index(lines, judged.scored.outcomes)
    return stated.Statement(
        candidate=_arm(job.candidate),
        baseline=_arm(job.baseline),
        suite=stated.Pinned(job.suite.name, job.suite.version, job.suite.digest),
        policy=stated.Pinned(job.policy.name, job.policy.version, job.policy.digest),
        harness=harness,
        host=host,
        decision=judged.decision,
        tallies=tallies(judged.scored.results),
        failures=failures(judged.scored.results),
        samples=samples,
        created=stated.format_time(now),
        ancestors=tuple(_ancestors(job)),
        data=data,
        attachments=attachments,
        gateway={"judged": job.policy.judged, **job.gateway} if job.gateway else {},
        sequential=job.order,
    )


def _arm(side: ServedModel) -> stated.ComparedArm:
    return stated.ComparedArm(side.artefact.identity, side.engine, side.numerics, side.reply_format)


def _ancestors(job: GateJob) -> Iterator[ModelIdentity]:
    """Those of the known artefacts from which the two arms descend."""
    arms = (job.candidate.artefact.identity, job.baseline.artefact.identity)
    known = {one.root: one for one in (*arms, *job.known)}
    above = {root for arm in arms for root in ancestors(arm, known)} - {arm.root for arm in arms}
    return (known[root] for root in sorted(above & known.keys()))


def reply_texts(samples: Iterable[Sample], judged: str = "") -> Texts:
    """The prompt and the `judged` reply of each case and arm; of several repeats the first in the store."""
    read = read_heard if judged == "through" else read_reply
    said: dict[tuple[str, str], PromptAndReply] = {}
    for sample in samples:
        if (place := (sample.key.case, sample.key.arm)) not in said:
            users = [str(m["content"]) for m in sample.request["messages"] if m["role"] == "user"]
            said[place] = PromptAndReply(users[-1] if users else "", _spoken(read(sample)))
    return said


def _spoken(reply: Reply) -> str:
    calls = [f"{call.name}({call.arguments})" for call in reply.calls]
    thought = [f"[thought] {reply.reasoning}"] if reply.reasoning else []
    error = [f"[error] {reply.error.message}"] if reply.error else []
    return "\n".join([*thought, reply.content, *calls, *error]).strip()


def summary(statement: stated.Statement) -> str:
    """The verdict and every rule as JSON, for scripts."""
    document = {
        **decision_summary(statement.decision),
        "candidate": statement.candidate.model.root,
        "attachments": [encode(file) for file in statement.attachments],
        "judged": statement.judged,
        "tallies": [encode(tally) for tally in statement.tallies if not tally.named],
    }
    return json.dumps(document, indent=2, ensure_ascii=False)


def decision_summary(decision: Decision) -> dict[str, Any]:
    """A decision as JSON has it: the verdict, every rule, and every control."""
    names = ("gate", "rule", "tier", "verdict", "n", "bad", "estimate", "limit", "sentence")
    return {
        "verdict": decision.verdict,
        "reasons": decision.reasons,
        "gates": [{name: getattr(result, name) for name in names} for result in decision.gates],
        "controls": [{"name": c.name, "holds": c.holds, "sentence": c.sentence} for c in decision.controls],
    }
