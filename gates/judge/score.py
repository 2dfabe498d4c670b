"""From samples to case results: runs every gate's detector on every reply, and takes rulings that no detector makes (an author's own
function, a judge model), for which `gates.run.rulings` asks. Pure.

A prompt is bad if any repeat that the policy counts was bad, lost if none was bad and one was lost. While a repeat is missing it
has no result.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, NamedTuple

from gates.contracts.case import Case, Suite
from gates.contracts.sample import BASELINE, CANDIDATE, LATENCY_PREFIX, OTHER_PREFIX, Sample
from gates.contracts.verdict import CaseResult, ControlResult, Outcome, Verdict
from gates.detect.catalogue import GATES
from gates.judge.formatting import percent
from gates.policy.policy import Policy
from gates.reply.reply import Reply, read_heard, read_reply
from gates.stats.binomial import wilson_lower

LEAST_AGREEMENT: Final = 0.8
"""Of a judge's rulings on labelled replies. With less, the report is inconclusive."""


class Ruling(NamedTuple):
    """`lost` if the function failed, or the judge gave no answer."""

    outcome: Outcome
    why: str = ""


Rulings = Mapping[tuple[str, str], Ruling]
"""By the digest of a sample's key, or `label_key`, and the gate."""

UNASKED: Final = Ruling("lost", "was not asked outside of the detectors")


def label_key(case: Case, number: int) -> str:
    """The key of the ruling on a labelled reply, which has no sample whose digest could be the key."""
    return f"label {case.id} {number}"


def needs_ruling(case: Case, gate: str) -> bool:
    """Whether a detector alone cannot judge a reply to this case."""
    return gate == "judge" or (gate == "checks" and "python" in case.expect["checks"])


def judge_agreement(suite: Suite, rulings: Rulings, confidence: float) -> ControlResult | None:
    """How often the judge ruled as a person did; None without labelled replies."""
    labelled = [
        (label["good"], rulings.get((label_key(case, i), "judge"), UNASKED).outcome)
        for case in suite.cases
        for i, label in enumerate(case.expect.get("judge", {}).get("labels", ()))
    ]
    if not (n := len(labelled)):
        return None
    agreed = sum(outcome == ("ok" if good else "bad") for good, outcome in labelled)
    verdict = Verdict.PASS if agreed >= LEAST_AGREEMENT * n else Verdict.INCONCLUSIVE
    least = percent(wilson_lower(agreed, n, confidence), "down")
    return ControlResult(
        "judge", Verdict.PASS, verdict, (),
        f"judge must agree with people on {percent(LEAST_AGREEMENT)} of labelled replies, and did on {agreed} of {n} (at least {least})",
    )  # fmt: skip


@dataclass(frozen=True, slots=True)
class ScoredSamples:
    """Case results by arm, and the worst outcome of each sample by its key's digest. An arm is here twice if callers hear its
    replies otherwise than the engine sent them: see `OTHER_PREFIX`.
    """

    results: Mapping[str, tuple[CaseResult, ...]]
    outcomes: Mapping[str, Outcome]


def score(
    policy: Policy,
    suite: Suite,
    samples: Iterable[Sample],
    tokens: Mapping[str, Collection[str]] | None = None,
    rulings: Rulings = MappingProxyType({}),
) -> ScoredSamples:
    """Judge every sample of the suite's cases; latency samples and other cases are ignored. `tokens`: special tokens by arm."""
    cases = {case.id: case for case in suite.cases}
    judged: dict[tuple[str, str, str], dict[tuple[int, str], tuple[Outcome, str]]] = {}
    worst: dict[str, Outcome] = {}
    other, heard_otherwise = OTHER_PREFIX[policy.judged], False
    for sample in samples:
        key = sample.key
        if key.arm.startswith(LATENCY_PREFIX) or key.case not in cases:
            continue
        case, known = cases[key.case], (tokens or {}).get(key.arm, ())
        as_sent = list(_judged(policy, case, sample, read_reply(sample), known, rulings))
        as_heard = as_sent
        if sample.heard is not None:
            heard_otherwise = True
            as_heard = list(_judged(policy, case, sample, read_heard(sample), known, rulings))
        deciding, beside = (as_heard, as_sent) if policy.judged == "through" else (as_sent, as_heard)
        arms = [(key.arm, deciding)]
        if key.arm in (CANDIDATE, BASELINE):
            arms.append((f"{other}{key.arm}", beside))
        for arm, found in arms:
            for gate, outcome, why in found:
                judged.setdefault((arm, gate, case.id), {})[key.repeat, key.mode] = outcome, why
        worst[key.digest] = max(("ok", *(outcome for _, outcome, _ in deciding)), key=_SEVERITY.index)
    if not heard_otherwise:
        judged = {place: found for place, found in judged.items() if not place[0].startswith(other)}
    return ScoredSamples(_results(policy, cases, judged), worst)


_SEVERITY: Final[tuple[Outcome, ...]] = ("ok", "lost", "bad")


def _judged(
    policy: Policy, case: Case, sample: Sample, reply: Reply, tokens: Collection[str], rulings: Rulings
) -> Iterator[tuple[str, Outcome, str]]:
    """(gate, outcome, evidence) of one sample, for the gates that count its repeat."""
    gates = [g for g in case.gates if g in policy.gates and sample.key.repeat in policy.counted(g)]
    if sample.fault is not None:
        yield from ((gate, "lost", f"{sample.fault.kind}: {sample.fault.detail}") for gate in gates)
        return
    repeat = f"repeat {sample.key.repeat}: " if sample.key.repeat else ""
    where = "not streamed: " if sample.key.mode == "whole" else repeat
    for gate in gates:
        outcome: Outcome = "bad" if (why := failure_reason(gate, case, reply, tokens)) else "ok"
        if outcome == "ok" and needs_ruling(case, gate):
            outcome, why = rulings.get((sample.key.digest, gate), UNASKED)
        yield gate, outcome, "" if outcome == "ok" else f"{where}{why}"


def failure_reason(gate: str, case: Case, reply: Reply, tokens: Collection[str] = ()) -> str:
    """Why a reply is bad for a gate, in one line, or "". Errors, cut streams and what breaks a detector are bad: unjudged must not pass.

    If the gateway held back the whole reply, callers heard nothing: it is empty, and neither a leak nor a raw call.
    """
    error, of_speech = reply.error, gate in ("leak", "raw_call")
    if error is not None and not (of_speech and error.code == "reply_fully_filtered"):
        return f"error: {error.message}"
    if error is None and not reply.complete:
        return f"cut off: HTTP {reply.status}, finish_reason {reply.finish_reason}"
    try:
        findings = GATES[gate].findings(case, reply, tokens)
    except Exception as error:
        return f"the detector failed on it: {type(error).__name__}: {error}"
    return str(findings[0]) + (f" (and {len(findings) - 1} more)" if findings[1:] else "") if findings else ""


def _results(
    policy: Policy,
    cases: Mapping[str, Case],
    judged: Mapping[tuple[str, str, str], Mapping[tuple[int, str], tuple[Outcome, str]]],
) -> dict[str, tuple[CaseResult, ...]]:
    """One result per case, gate and arm: the worst outcome of the repeats that count."""
    results: dict[str, list[CaseResult]] = {}
    for (arm, gate, name), found in judged.items():
        case = cases[name]
        outcome, why = max(found.values(), key=lambda pair: _SEVERITY.index(pair[0]))
        asked = {repeat for repeat, mode in found if mode == "stream"}
        if outcome != "bad" and not asked.issuperset(policy.counted(gate)):
            continue  # a repeat is missing: a pass would claim more than was measured
        result = CaseResult(name, gate, outcome, case.stage, gate in case.named, why)
        results.setdefault(arm, []).append(result)
    return {arm: tuple(found) for arm, found in results.items()}
