"""The door: whether a candidate may be brought in at all. Pure; `app.promotion.facts` gathers what it asks for.

A promotion needs a report that is signed by a trusted key, fresh, a pass, about these very weights
and this very engine, and made by the suite and the policy in force; none of it may be revoked. A
rollback needs none of that, and goes only where the model was served from before.

The questions stand in the order in which an answer can be believed: the signature first, and then
whether anything was revoked, for a revoked thing stays refused whatever else is said of it.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from app.engines.identity import UNKNOWN
from app.promotion.outcome import EffectRefused
from app.promotion.phases import Fault
from app.registry.values import Alias, KnownEngine, Revocation, Thing
from gates.contracts.errors import ReportError
from gates.policy.values import Policy
from gates.report import checks
from gates.report.statement import Engine, Statement, moment
from gates.report.verify import Verified, open_report

Origin = tuple[str | None, Mapping[str, str]]
"""An artefact's base model and its parents by role, as its manifest has them."""

Evidence = dict[str, object]
"""Numbers and digests that an effect's outcome rests on, as JSON has them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """What is known when a candidate knocks.

    `asked` is the digest of the report that was named, `report` its bytes; None: it is not here.
    `root` is what the candidate's files hash to now, None with the reason in `weights`. `planned` is
    the engine as it would be started, `spec` the digest of its spec. `suite` and `policy` are the
    digests in force, `rules` that policy itself, `now` an aware time, `revocations` all there are.
    `baseline` is the root of the baseline that the configuration names, None: it names none; and
    `origins` are the base model and the parents of artefacts that are known here, by root.
    """

    asked: str | None
    report: bytes | None
    trusted: Mapping[str, Ed25519PublicKey]
    now: datetime
    max_age_days: float | None
    root: str | None
    planned: Engine | None
    spec: str
    suite: str
    policy: str
    rules: Policy | None = None
    baseline: str | None = None
    origins: Mapping[str, Origin] = field(default_factory=dict)
    weights: str = ""
    revocations: tuple[Revocation, ...] = ()


def check(facts: Facts, waived: Collection[str] = ()) -> Evidence:
    """What the candidate may be brought in on. Raises EffectRefused with the first question answered no.

    `waived` are codes that an operator's override lets through (`app.promotion.override`); the
    evidence tells which of them would have refused it, and why. All other questions stand.
    """
    waivers: dict[str, str] = {}
    opened: Verified | None = None
    try:
        with _waiving(waived, waivers):
            opened = _opened(facts)
        if fault := _revoked(_named(facts, opened), facts.revocations):
            raise EffectRefused(fault)
        for ask in _questions(facts, opened):
            with _waiving(waived, waivers):
                ask()
    except ReportError as error:
        raise EffectRefused(Fault(error.code, str(error))) from None
    return _evidence(facts, opened) | ({"waived": waivers} if waivers else {})


def refusal(facts: Facts, waived: Collection[str] = ()) -> Fault | None:
    """Why the candidate may not be brought in; None: it may."""
    try:
        check(facts, waived)
    except EffectRefused as refused:
        return refused.fault
    return None


def refusal_of_rollback(
    candidate: str, previous: Alias | None, known: KnownEngine | None, revocations: Iterable[Revocation]
) -> Fault | None:
    """Why a model may not go back to this engine; None: it may.

    It needs no report, but must be what the model was served from before the last promotion, and
    must not have been revoked since. `candidate` is an engine's digest, `known` its row.
    """
    if previous is None or previous.engine != candidate or known is None:
        return Fault("no_previous", "a rollback goes only to the engine that served before; there is none")
    things: list[tuple[Thing, str | None]] = [("engine", candidate), ("artefact", known.artefact)]
    return _revoked(things, revocations)


# ------------------------------------------------------------------------------- the questions


def _opened(facts: Facts) -> Verified:
    """The report with its signature verified. Raises ReportError."""
    if facts.report is None:
        named = f"there is no report {facts.asked:.80} here" if facts.asked else "no report was named"
        raise checks.refuse("report_missing", f"{named}; upload it to /admin/reports")
    opened = open_report(facts.report, facts.trusted)
    if facts.asked is not None and opened.digest != facts.asked:
        raise checks.refuse("report_signature", f"the report on file is not {facts.asked:.80} any more")
    return opened


@contextmanager
def _waiving(waived: Collection[str], waivers: dict[str, str]) -> Iterator[None]:
    """A refusal whose code is waived is noted, and nothing more."""
    try:
        yield
    except ReportError as error:
        if error.code not in waived:
            raise
        waivers[error.code] = str(error)


def _named(facts: Facts, opened: Verified | None) -> Iterator[tuple[Thing, str | None]]:
    """All that a promotion rests on and that can be revoked.

    A report by the digest of its envelope and of what was signed: a signature added later changes
    the first and must not give a revoked report a second life.
    """
    yield "artefact", facts.root
    yield "engine", facts.spec
    if opened is not None:
        candidate = opened.statement.candidate
        yield from (("key", signer) for signer in opened.signers)
        yield from (("report", digest) for digest in (opened.digest, opened.statement_digest))
        yield "artefact", candidate.model.root
        yield "engine", candidate.engine.digest
        yield "artefact", opened.statement.baseline.model.root


def _revoked(things: Iterable[tuple[Thing, str | None]], revocations: Iterable[Revocation]) -> Fault | None:
    known = {(found.thing, found.id): found for found in revocations}
    for thing, identity in things:
        if identity is not None and (found := known.get((thing, identity))):
            return Fault("revoked", f"{thing} {identity:.19} was revoked at {found.at}: {found.reason:.200}")
    return None


def _questions(facts: Facts, opened: Verified | None) -> Iterator[Callable[[], object]]:
    """Each raises ReportError for a no. Without a report, only the weights can be asked."""
    yield lambda: _sound(facts)
    if opened is None:
        return
    statement = opened.statement
    yield lambda: checks.age(statement, facts.now, facts.max_age_days)
    yield lambda: checks.verdict(statement)
    if facts.root is not None and facts.planned is not None:
        root, planned = facts.root, facts.planned
        yield lambda: checks.artefact(statement, root)
        yield lambda: checks.engine(statement, _with_build(planned, statement.candidate.engine))
    yield lambda: checks.suite(statement, facts.suite)
    yield lambda: checks.policy(statement, facts.policy)
    if facts.rules is not None and statement.policy.digest == facts.policy:
        rules = facts.rules
        yield lambda: checks.complete(statement, rules)
    yield lambda: _baseline(facts, statement)


def _baseline(facts: Facts, statement: Statement) -> None:
    checks.lineage(statement)
    for model in (statement.candidate.model, statement.baseline.model, *statement.ancestors):
        if origin := facts.origins.get(model.root):
            checks.provenance(model, *origin)
    checks.baseline(statement, facts.baseline)


def _sound(facts: Facts) -> None:
    if facts.root is None or facts.planned is None:
        raise checks.refuse("mismatch_artefact", facts.weights or "the engine names no artefact")


def _evidence(facts: Facts, opened: Verified | None) -> Evidence:
    known: Evidence = {"artefact": facts.root, "suite": facts.suite, "policy": facts.policy}
    if opened is None:
        return known
    statement = opened.statement
    age = facts.now - moment(statement.created)
    return known | {
        "report": opened.digest,
        "statement": opened.statement_digest,
        "signers": list(opened.signers),
        "age_days": round(age.total_seconds() / 86_400, 3),
        "verdict": str(statement.verdict),
        "engine": statement.candidate.engine.digest,
        "baseline": statement.baseline.model.root,
    }


def _with_build(planned: Engine, reported: Engine) -> Engine:
    """An engine that does not run yet does not say its build; that is asked again when it does."""
    return planned if planned.build != UNKNOWN else replace(planned, build=reported.build)
