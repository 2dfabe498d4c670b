"""The door: every reason not to let a candidate in, and none where there is none."""

from collections.abc import Callable, Collection
from dataclasses import replace
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Literal

import pytest

from app.engines.identity import describe
from app.promotion import eligibility
from app.promotion.eligibility import EligibilityFacts
from app.promotion.facts import RegistryRecords, collect, opened, records
from app.promotion.state_machine import (
    EffectError,
    FailureReason,
    OperationKind,
    OperationPlan,
    RefusalError,
)
from app.registry.registry import Registry
from app.registry.values import AuditEntry, KnownEngine, KnownReport, Revocation, Thing
from deploy.engine.spec import EngineSpec, spec_digest
from gates.artefact import artefact
from gates.artefact.artefact import ModelIdentity, Provenance
from gates.contracts.errors import ReportError
from gates.contracts.numerics import Numerics, Part
from gates.contracts.verdict import Verdict
from gates.policy.load import load_policy
from gates.policy.policy import NumericsRule, RequiredResult
from gates.report import dsse
from gates.report.files import VerifiedReport, open_report
from gates.report.keys import load_or_make
from gates.report.statement import ComparedArm, Pinned, Statement, digest_of
from gates.report.statement import render as statement_text
from gates.suite.load import load_suite
from tests.app.promotion.stage import settings
from tests.gates.report import examples
from tests.gates.report.examples import CANDIDATE, KEY, OTHER_KEY, WHEN

SIGNER = dsse.key_id(KEY.public_key())
SPEC = "sha256:" + "5" * 64
AT = "2026-11-21T06:00:00Z"


def signed(statement: Statement) -> bytes:
    return dsse.render(dsse.sign(statement_text(statement), KEY))


POLICY = load_policy("annie")
WHOLE = examples.passed(POLICY)
"""The decision of a report in which nothing that the policy demands is missing."""
GOOD = replace(
    examples.passing(), samples=replace(examples.passing().samples, lines=()), decision=WHOLE,
    policy=Pinned(POLICY.name, 1, POLICY.digest),
)  # fmt: skip
"""Without its two thousand samples, which nobody asks for here."""
REPORT = signed(GOOD)
OPENED = open_report(REPORT, {SIGNER: KEY.public_key()})
MISSING = ReportError("report_missing", "there is no report here")
FACTS = EligibilityFacts(
    report=OPENED, now=WHEN + timedelta(days=2), max_age_days=7,
    candidate=(CANDIDATE.model.root, replace(CANDIDATE.engine, build="unknown")), spec=SPEC,
    suite=GOOD.suite.digest, policy=POLICY,
)  # fmt: skip


def opening(statement: Statement) -> VerifiedReport:
    return open_report(signed(statement), {SIGNER: KEY.public_key()})


def stating(**changes: object) -> EligibilityFacts:
    """The facts with a report that states something else."""
    return replace(FACTS, report=opening(replace(GOOD, **changes)))  # type: ignore[arg-type]


def refusal(facts: EligibilityFacts, waived: Collection[str] = ()) -> FailureReason | None:
    """Why the candidate is not eligible; None: it is."""
    try:
        eligibility.check(facts, waived)
    except RefusalError as refused:
        return refused.fault
    return None


def revoked(thing: Thing, identity: str) -> EligibilityFacts:
    return replace(FACTS, revocations=(Revocation(thing=thing, id=identity, reason="it cheats", at=AT),))


def of_another_base() -> EligibilityFacts:
    other = ModelIdentity("other", "hf-bf16", examples.sha("other"), "somebody/else", {})
    return stating(baseline=ComparedArm(other, GOOD.baseline.engine))


def test_a_sound_report_lets_the_candidate_in_with_its_evidence() -> None:
    assert refusal(FACTS) is None
    found = eligibility.check(FACTS)
    assert (found["age_days"], found["verdict"], found["report"]) == (2.0, "pass", OPENED.digest)
    assert found["artefact"] == CANDIDATE.model.root and found["signers"] == [SIGNER]


def deciding(**changes: object) -> EligibilityFacts:
    """The facts with a report whose decision is another."""
    return stating(decision=replace(WHOLE, **changes))  # type: ignore[arg-type]


def serving(root: str = CANDIDATE.model.root, **engine: object) -> EligibilityFacts:
    """The facts where other weights, or another engine, would be started."""
    return replace(FACTS, candidate=(root, replace(CANDIDATE.engine, **engine)))  # type: ignore[arg-type]


def without_rule(demand: RequiredResult) -> EligibilityFacts:
    return deciding(gates=tuple(r for r in WHOLE.gates if (r.gate, r.rule) != demand[:2]))


def without_control(name: str) -> EligibilityFacts:
    return deciding(controls=tuple(c for c in WHOLE.controls if c.name != name))


def knowing(model: ModelIdentity, **changes: object) -> EligibilityFacts:
    """The facts where an artefact's manifest says something else than the report."""
    seen = replace(model, **changes)  # type: ignore[arg-type]
    return replace(FACTS, origins={model.root: (seen.base_model, seen.parents)})


def computing(found: Numerics) -> EligibilityFacts:
    """The facts where the report and the engine both say what computes."""
    stated = replace(GOOD.candidate, numerics=Numerics(scheme="W4A16", kv_cache="K f16, V f16"))
    return replace(stating(candidate=stated), numerics=found)


def permitting(facts: EligibilityFacts, *parts: Part, required: bool = False) -> EligibilityFacts:
    """The facts under a policy with this rule, of which the report is one."""
    policy = replace(POLICY, numerics=NumericsRule(parts, required))
    assert not isinstance(facts.report, ReportError)
    stated = replace(facts.report.statement, policy=Pinned(POLICY.name, 1, policy.digest))
    return replace(facts, report=opening(stated), policy=policy)


def sequential(mode: Literal["refused", "allowed"]) -> EligibilityFacts:
    """The facts with a report of a sequential run, under a policy that refuses it or not."""
    policy = replace(POLICY, sequential=mode)
    return replace(stating(policy=Pinned(POLICY.name, 1, policy.digest), sequential="5eed"), policy=policy)


def with_cache(kind: str, *args: str) -> EligibilityFacts:
    """The facts where the cache's type is another argument of the engine."""
    argv = (*CANDIDATE.engine.argv, "--cache-type-k", kind, *args)
    facts = computing(Numerics(kv_cache=f"K {kind}, V f16"))
    return replace(facts, candidate=serving(argv=argv).candidate)


HEARD = {"judged": "through", "reasoning": "strip"}

REFUSALS: list[tuple[str, Callable[[], EligibilityFacts]]] = [
    ("report_missing", lambda: replace(FACTS, report=MISSING)),
    ("report_stale", lambda: replace(FACTS, now=WHEN + timedelta(days=8))),
    ("verdict_not_pass", lambda: stating(decision=replace(GOOD.decision, verdict=Verdict.INCONCLUSIVE))),
    ("mismatch_artefact", lambda: serving(examples.sha("other weights"))),
    ("mismatch_artefact", lambda: replace(FACTS, candidate="a file was changed")),
    ("mismatch_engine", lambda: serving(argv=("--other",))),
    ("mismatch_engine", lambda: serving(build="vLLM 0.1")),
    ("mismatch_numerics", lambda: computing(Numerics(kv_cache="K q8_0, V f16"))),
    ("mismatch_numerics", lambda: permitting(FACTS, required=True)),
    ("mismatch_engine", lambda: permitting(replace(with_cache("q8_0"), numerics=Numerics()), "gpu")),
    ("mismatch_engine", lambda: permitting(with_cache("q8_0", "--jinja"), "kv_cache")),
    ("mismatch_suite", lambda: replace(FACTS, suite=examples.sha("stricter"))),
    ("mismatch_policy", lambda: sequential("refused")),
    ("mismatch_model", lambda: replace(stating(gateway=HEARD), heard={"reasoning": "inline"})),
    ("mismatch_policy", lambda: stating(policy=Pinned("lax", 1, examples.sha("lax")))),
    ("baseline_lineage", of_another_base),
    ("baseline_lineage", lambda: stating(baseline=GOOD.candidate)),
    ("baseline_lineage", lambda: replace(FACTS, baseline=examples.sha("another baseline"))),
    ("baseline_lineage", lambda: knowing(GOOD.candidate.model, parents={"source": examples.sha("else")})),
    ("baseline_lineage", lambda: knowing(GOOD.baseline.model, base_model="somebody/else")),
    ("revoked", lambda: revoked("artefact", GOOD.baseline.model.root)),
    *(("verdict_not_pass", partial(without_rule, demand)) for demand in POLICY.required_results),
    *(("verdict_not_pass", partial(without_control, name)) for name in POLICY.required_controls),
    (
        "verdict_not_pass",
        lambda: deciding(gates=tuple(replace(r, tier="advisory") for r in WHOLE.gates[:1]) + WHOLE.gates[1:]),
    ),
    (
        "verdict_not_pass",
        lambda: deciding(
            controls=tuple(replace(c, expected=Verdict.PASS, verdict=Verdict.PASS) for c in WHOLE.controls)
        ),
    ),
    ("revoked", lambda: revoked("report", OPENED.digest)),
    ("revoked", lambda: revoked("report", OPENED.statement_digest)),
    ("revoked", lambda: revoked("key", SIGNER)),
    ("revoked", lambda: revoked("artefact", CANDIDATE.model.root)),
    ("revoked", lambda: revoked("engine", SPEC)),
    ("revoked", lambda: revoked("engine", CANDIDATE.engine.digest)),
]


@pytest.mark.parametrize("code, facts", REFUSALS)
def test_a_promotion_is_refused_with_a_code_and_one_line(
    code: str, facts: Callable[[], EligibilityFacts]
) -> None:
    fault = refusal(facts())
    assert fault is not None and fault.code == code
    assert fault.message and "\n" not in fault.message


def test_what_computes_otherwise_is_let_in_where_the_policy_says_so() -> None:
    for facts in (computing(Numerics(kv_cache="K q8_0, V f16")), with_cache("q8_0")):
        assert (fault := refusal(facts)) and fault.code == "mismatch_numerics"
        assert refusal(permitting(facts, "kv_cache")) is None
    found = eligibility.check(permitting(with_cache("q8_0"), "kv_cache"))
    assert found["numerics"] == "quantization scheme W4A16, KV cache K f16, V f16"


def test_a_report_without_what_computed_is_let_in_unless_the_policy_requires_it() -> None:
    facts = replace(FACTS, numerics=Numerics(kv_cache="K q8_0, V f16"))
    assert refusal(permitting(facts)) is None
    assert eligibility.check(facts)["numerics"] == "not recorded"
    assert refusal(permitting(computing(Numerics()), required=True)) is None


def test_what_differs_without_harm_is_let_in() -> None:
    buckets = tuple(replace(r, gate=f"{r.gate}[500]") if r.rule == "latency" else r for r in WHOLE.gates)
    for facts in (
        deciding(gates=buckets),  # its latency was judged bucket by bucket
        sequential("allowed"),
        replace(FACTS, baseline=GOOD.baseline.model.root),
        replace(FACTS, baseline=GOOD.candidate.model.root),  # the configured baseline itself is promoted
    ):
        assert refusal(facts) is None


def test_a_report_that_another_key_signed_again_is_as_revoked_as_it_was() -> None:
    again, other = dsse.sign(dsse.parse(REPORT).payload, OTHER_KEY), OTHER_KEY.public_key()
    report = open_report(dsse.render(again), {dsse.key_id(other): other})
    facts = replace(revoked("report", OPENED.statement_digest), report=report)
    assert (fault := refusal(facts)) and fault.code == "revoked"


# ------------------------------------------------------------------------------------- overridden


def test_a_waived_code_refuses_nothing_and_is_told_with_its_reason() -> None:
    stale = replace(FACTS, now=WHEN + timedelta(days=8))
    found = eligibility.check(stale, {"report_stale"})
    assert set(found["waived"]) == {"report_stale"}  # type: ignore[call-overload]
    assert "waived" not in eligibility.check(FACTS, {"report_stale"})


def test_behind_a_waived_question_the_others_are_still_asked() -> None:
    stale = replace(FACTS, now=WHEN + timedelta(days=8))
    for facts, code in (
        (replace(stale, candidate="a file was changed"), "mismatch_artefact"),
        (replace(stale, suite=examples.sha("stricter")), "mismatch_suite"),
        (replace(stale, revocations=revoked("key", SIGNER).revocations), "revoked"),
    ):
        assert (fault := refusal(facts, {"report_stale"})) and fault.code == code


def test_without_a_report_the_weights_must_still_be_sound_and_not_revoked() -> None:
    none = replace(FACTS, report=MISSING)
    found = eligibility.check(none, {"report_missing"})
    assert found["artefact"] == CANDIDATE.model.root and "report" not in found
    for facts, code in (
        (replace(none, candidate="a file was changed"), "mismatch_artefact"),
        (replace(none, revocations=revoked("engine", SPEC).revocations), "revoked"),
    ):
        assert (fault := refusal(facts, {"report_missing"})) and fault.code == code


# ------------------------------------------------------------------------------------- rollback

KNOWN = KnownEngine(digest=SPEC, name="old", artefact=CANDIDATE.model.root, spec="{}")


@pytest.mark.parametrize(
    "code, thing",
    [(None, ("engine", "sha256:another")), ("revoked", ("engine", SPEC)), ("revoked", ("artefact", KNOWN.artefact))],
)  # fmt: skip
def test_a_rollback_goes_to_nothing_that_is_revoked(code: str | None, thing: tuple[Thing, str]) -> None:
    gone = [Revocation(thing=thing[0], id=thing[1], reason="it cheats", at=AT)]
    fault = eligibility.refusal_of_rollback(KNOWN, gone)
    assert (fault and fault.code) == code


# ------------------------------------------------------------------------- gathered from the disk


class Place:
    """A state folder with a key and a report of a small artefact, and a registry that knows it."""

    def __init__(self, base: Path) -> None:
        self.base, self.folder, self.state = base, base / "model", base / "state"
        self.folder.mkdir()
        (self.folder / "model.gguf").write_bytes(b"GGUF" + bytes(100))
        origin = Provenance(base_model="base")
        made = artefact.seal(self.folder, name="a", format="gguf-f16", created=WHEN, provenance=origin)
        self.spec = EngineSpec(
            name="annie", dialect="llama-server", driver="embedded", artefact=self.folder / "model.gguf"
        )
        key = load_or_make(self.state / "keys")
        side = ComparedArm(ModelIdentity("a", "gguf-f16", made.root, "base", {}), describe(self.spec, made))
        other = replace(side, engine=replace(side.engine, argv=("--other",)))
        suite, policy = load_suite("annie-nano"), load_policy("annie-nano")
        report = dsse.render(
            dsse.sign(
                statement_text(
                    replace(
                        GOOD, candidate=side, baseline=other, decision=examples.passed(policy), suite=Pinned("annie-nano", 1, suite.digest),
                        policy=Pinned("annie-nano", 1, policy.digest),
                    )
                ),
                key,
            )
        )  # fmt: skip
        (self.state / "reports").mkdir()
        (self.state / "reports" / "one.json").write_bytes(report)
        self.digest = open_report(report, {dsse.key_id(key.public_key()): key.public_key()}).digest
        self.registry = Registry(self.state / "registry.sqlite")
        known = KnownReport(
            digest=self.digest, statement=digest_of("s"), artefact=made.root, suite=suite.digest, policy=policy.digest,
            baseline=made.root, verdict="pass", created=AT, path="reports/one.json",
        )  # fmt: skip
        self.registry.add(known, self.entry)

    entry = AuditEntry(at=AT, actor="test", verb="report", subject="annie")

    def found(self, report: str | None) -> RegistryRecords:
        plan = OperationPlan(
            operation="op", kind=OperationKind.PROMOTE, model="annie", candidate="new", incumbent="old",
            strategy="blue_green", generation=1, report=report,
        )  # fmt: skip
        return records(self.registry, plan, WHEN)

    def facts(self, report: str | None = None, **gates: str) -> EligibilityFacts:
        found = self.found(report or self.digest)
        config = settings(self.state)
        config = config.model_copy(update={"gates": config.gates.model_copy(update=gates)})
        return collect(found, config, self.spec)


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def test_what_lies_on_the_disk_is_let_in_unless_something_of_it_changed(place: Place) -> None:
    facts = place.facts()
    assert code(facts) is None and facts.spec == spec_digest(place.spec)
    assert code(place.facts(suite="annie")) == "mismatch_suite"
    assert code(place.facts(policy="annie")) == "mismatch_policy"
    with pytest.raises(EffectError, match="gates_unreadable"):
        place.facts(suite="no-such-suite")
    gone = Revocation(thing="report", id=place.digest, reason="it cheats", at=AT)
    place.registry.revoke(gone, Place.entry)
    assert code(place.facts()) == "revoked"


def test_the_judged_engine_is_told_only_of_a_genuine_report(place: Place) -> None:
    found = place.found(place.digest)
    report = opened(found, place.state)
    assert not isinstance(report, ReportError)
    stated = report.statement.candidate
    assert (stated.model.root, stated.engine) == place.facts().candidate
    (place.state / "keys" / "report.pub").unlink()
    assert isinstance(opened(found, place.state), ReportError)
    assert isinstance(opened(place.found(None), place.state), ReportError)


def code(facts: EligibilityFacts) -> str | None:
    fault = refusal(facts)
    return fault.code if fault else None


def test_a_changed_byte_of_the_weights_is_another_artefact(place: Place) -> None:
    with (place.folder / "model.gguf").open("r+b") as file:
        file.seek(50)
        file.write(b"x")
    fault = refusal(place.facts())
    assert fault is not None and fault.code == "mismatch_artefact" and "model.gguf" in fault.message


def test_a_report_that_was_never_uploaded_or_was_lost_is_missing(place: Place) -> None:
    assert code(place.facts(examples.sha("never"))) == "report_missing"
    (place.state / "reports" / "one.json").unlink()
    assert code(place.facts()) == "report_missing"


def test_without_a_key_to_trust_no_signature_is_believed(place: Place) -> None:
    (place.state / "keys" / "report.pub").unlink()
    assert code(place.facts()) == "report_signature"


def test_another_report_in_its_file_is_not_believed(place: Place) -> None:
    other = dsse.sign(statement_text(GOOD), load_or_make(place.state / "keys"))
    (place.state / "reports" / "one.json").write_bytes(dsse.render(other))
    assert code(place.facts()) == "report_signature"


def test_the_configured_baseline_is_known_by_its_manifest(place: Place) -> None:
    found, config = place.found(place.digest), settings(place.state, baseline="small")

    def root(folder: Path) -> str | None:
        config.engines["small"] = replace(config.engines["small"], artefact=folder)
        return collect(found, config, place.spec).baseline

    assert root(place.folder) == artefact.load(place.folder).root
    with pytest.raises(EffectError, match="gates_unreadable"):
        root(place.base)


def test_a_manifest_with_another_origin_than_the_reports_is_refused(place: Place) -> None:
    origin = Provenance(base_model="another base")
    artefact.seal(place.folder, name="a", format="gguf-f16", created=WHEN, provenance=origin)
    assert code(place.facts()) == "baseline_lineage"
