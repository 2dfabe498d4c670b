"""Eligibility: whether a candidate may be promoted at all. Pure; `facts` collects the inputs.

A promotion needs a report that is signed by a trusted key, fresh, a pass, about exactly these weights and this
engine, and made with the suite and the policy in force; none of it may be revoked. A rollback needs no report, and
its only target is the engine that served the model before. The signature is checked first, then revocations.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from app.engines.identity import UNKNOWN
from app.promotion.state_machine import EffectEvidence, FailureReason, RefusalError
from app.registry.values import KnownEngine, Revocation, Thing
from deploy.core.flags import without_kv_flags
from gates.contracts.errors import ReportError
from gates.contracts.numerics import Numerics
from gates.policy.policy import NumericsRule, Policy
from gates.report import checks
from gates.report.files import VerifiedReport
from gates.report.statement import EngineIdentity, Statement, parse_time

Origin = tuple[str | None, Mapping[str, str]]  # base model, and parents by role, as a manifest states them


@dataclass(frozen=True, slots=True, kw_only=True)
class EligibilityFacts:
    """The inputs of the checks."""

    report: VerifiedReport | ReportError  # that was named, or why it is missing or not to be trusted
    now: datetime  # with a zone
    max_age_days: float | None
    # The present root digest of the weights, and the engine as it would be started; or why the weights are not sound.
    candidate: tuple[str, EngineIdentity] | str
    spec: str  # digest of the engine's spec
    suite: str  # digest of the suite in force
    policy: Policy  # in force
    numerics: Numerics = field(default_factory=Numerics)  # what is known of them before a start
    baseline: str | None = None  # root of the baseline that the configuration names
    heard: Mapping[str, str] = field(default_factory=dict)  # `app.engines.heard.settings` of the model
    origins: Mapping[str, Origin] = field(default_factory=dict)  # of known artefacts, by root
    revocations: tuple[Revocation, ...] = ()  # all of them


def check(facts: EligibilityFacts, waived: Collection[str] = ()) -> EffectEvidence:
    """The evidence that the candidate is eligible. Raises RefusalError with the first check that fails.

    `waived` are the codes that an operator's override waives; the evidence lists those that would have been refused, and why.
    """
    waivers: dict[str, str] = {}

    def refuse(error: ReportError) -> None:
        """Raise RefusalError, unless the code is waived, which is recorded."""
        if error.code not in waived:
            raise RefusalError(FailureReason(error.code, str(error))) from None
        waivers[error.code] = str(error)

    opened = None if isinstance(facts.report, ReportError) else facts.report
    if isinstance(facts.report, ReportError):
        refuse(facts.report)
    sound = None if isinstance(facts.candidate, str) else facts.candidate
    if fault := _revoked([("artefact", sound and sound[0]), *_named(facts, opened)], facts.revocations):
        raise RefusalError(fault)
    if sound is None:
        raise RefusalError(FailureReason("mismatch_artefact", str(facts.candidate)))
    for run_check in _checks(facts, opened, *sound) if opened else ():
        try:
            run_check()
        except ReportError as error:
            refuse(error)
    return {"artefact": sound[0], **_evidence(facts, opened), **({"waived": waivers} if waivers else {})}


def refusal_of_rollback(known: KnownEngine, revocations: Iterable[Revocation]) -> FailureReason | None:
    """Why a model may not be rolled back to an engine that served it before; None: it may. It needs no report."""
    return _revoked([("engine", known.digest), ("artefact", known.artefact)], revocations)


def _named(facts: EligibilityFacts, opened: VerifiedReport | None) -> Iterator[tuple[Thing, str]]:
    """The revocable things that a promotion needs. A report has two digests: another signature keeps that of its statement."""
    yield "engine", facts.spec
    if opened is not None:
        candidate = opened.statement.candidate
        yield from (("key", signer) for signer in opened.signers)
        yield from (("report", digest) for digest in (opened.digest, opened.statement_digest))
        yield "artefact", candidate.model.root
        yield "engine", candidate.engine.digest
        yield "artefact", opened.statement.baseline.model.root


def _revoked(
    things: Iterable[tuple[Thing, str | None]], revocations: Iterable[Revocation]
) -> FailureReason | None:
    named = {*things}
    for gone in revocations:
        if (gone.thing, gone.id) in named:
            why = f"{gone.thing} {gone.id:.19} was revoked at {gone.at}: {gone.reason:.200}"
            return FailureReason("revoked", why)
    return None


def _checks(
    facts: EligibilityFacts, opened: VerifiedReport, root: str, planned: EngineIdentity
) -> Iterator[Callable[[], object]]:
    """Each raises ReportError if it fails."""
    statement, policy = opened.statement, facts.policy
    engine = _comparable(planned, statement.candidate.engine, policy.numerics)
    yield lambda: checks.age(statement, facts.now, facts.max_age_days)
    yield lambda: checks.verdict(statement)
    yield lambda: checks.artefact(statement, root, planned.name)
    yield lambda: checks.numerics(statement, facts.numerics, planned.name, policy.numerics, runs=False)
    yield lambda: checks.engine(statement, engine)
    yield lambda: checks.pinned(statement.suite, facts.suite, "mismatch_suite")
    yield lambda: checks.pinned(statement.policy, policy.digest, "mismatch_policy")
    yield lambda: checks.heard(statement, facts.heard)
    if statement.policy.digest == policy.digest:
        yield lambda: checks.complete(statement, policy)
    yield lambda: _baseline(facts, statement)


def _baseline(facts: EligibilityFacts, statement: Statement) -> None:
    checks.lineage(statement)
    for model in (statement.candidate.model, statement.baseline.model, *statement.ancestors):
        if origin := facts.origins.get(model.root):
            checks.provenance(model, *origin)
    checks.baseline(statement, facts.baseline)


def _comparable(planned: EngineIdentity, reported: EngineIdentity, rule: NumericsRule) -> EngineIdentity:
    """The planned engine without what cannot be compared before a start, its build (IDENTIFY does), and what need not: if the
    KV cache's type may differ, so may the flags that set it."""
    if planned.build == UNKNOWN:
        planned = replace(planned, build=reported.build)
    if "kv_cache" in rule.may_differ and without_kv_flags(planned.argv) == without_kv_flags(reported.argv):
        planned = replace(planned, argv=reported.argv)
    return planned


def _evidence(facts: EligibilityFacts, opened: VerifiedReport | None) -> EffectEvidence:
    known: EffectEvidence = {"suite": facts.suite, "policy": facts.policy.digest}
    if opened is None:
        return known
    statement = opened.statement
    return known | {
        "report": opened.digest,
        "statement": opened.statement_digest,
        "signers": list(opened.signers),
        "age_days": round((facts.now - parse_time(statement.created)) / timedelta(days=1), 3),
        "verdict": str(statement.verdict),
        "engine": statement.candidate.engine.digest,
        "numerics": str(statement.candidate.numerics or "not recorded"),
        "baseline": statement.baseline.model.root,
    }
