"""Collects the inputs of `app.promotion.eligibility`: from the registry, the configuration and the files."""

from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from app.config.config import Config
from app.engines.heard import settings
from app.engines.identity import describe
from app.promotion import overrides
from app.promotion.eligibility import EligibilityFacts, Origin
from app.promotion.state_machine import EffectError, FailureReason, OperationPlan
from app.registry.registry import RegistryReader
from app.registry.values import KnownArtefact, KnownReport, Revocation
from deploy.engine.dialects import from_arguments
from deploy.engine.spec import EngineSpec, spec_digest
from gates.artefact import artefact as artefacts
from gates.artefact.artefact import Artefact
from gates.contracts.case import Suite
from gates.contracts.errors import GatesError, KeyFileError, ManifestError, ReportError
from gates.policy.load import policy_for
from gates.policy.policy import Policy
from gates.report.checks import first_few
from gates.report.files import VerifiedReport, open_report
from gates.report.keys import trusted
from gates.report.statement import EngineIdentity
from gates.suite.load import load_suite

KEYS = "keys"  # the folder of trusted public keys, in the state folder


@cache
def suite_in_force(name_or_path: str) -> Suite:
    """The configured suite, by its name or path; read once, which takes about a second. Raises SuiteError, OSError."""
    return load_suite(name_or_path)


def gates_in_force(config: Config) -> tuple[Suite, Policy]:
    """The configured suite and policy; for a thread. Raises EffectError: one of them cannot be read."""
    try:
        suite = suite_in_force(config.gates.suite)
        return suite, policy_for(config.gates.policy, suite)
    except (GatesError, OSError) as error:
        raise EffectError(FailureReason("gates_unreadable", str(error))) from None


@dataclass(frozen=True, slots=True)
class RegistryRecords:
    """The registry's rows about a plan at a time: its report, all revocations and artefacts, and the waived codes."""

    plan: OperationPlan
    now: datetime
    report: KnownReport | None
    revocations: tuple[Revocation, ...]
    artefacts: tuple[KnownArtefact, ...]
    waived: Collection[str]


def records(reader: RegistryReader, plan: OperationPlan, now: datetime) -> RegistryRecords:
    """Quick; for the registry's thread. Raises StorageFailed."""
    return RegistryRecords(
        plan,
        now,
        reader.find(KnownReport, digest=plan.report),
        reader.all(Revocation),
        reader.all(KnownArtefact),
        overrides.waived_codes(overrides.active(reader, now), plan.model, plan.candidate),
    )


def collect(
    found: RegistryRecords, config: Config, spec: EngineSpec, *, reads_weights: bool = True
) -> EligibilityFacts:
    """All of the facts. Hashes every byte of the weights, unless their manifest is to be believed: for a thread.

    Raises EffectError: the suite, the policy, or the manifest of the configured baseline cannot be read.
    """
    suite, policy = gates_in_force(config)
    serves, baseline = config.models[found.plan.model], None
    try:
        if serves.baseline:
            baseline = verified(config.engines[serves.baseline], reads_weights=False).root
    except ManifestError as error:
        raise EffectError(FailureReason("gates_unreadable", str(error))) from None
    origins: dict[str, Origin] = {known.root: (known.base_model, known.parents) for known in found.artefacts}
    candidate: tuple[str, EngineIdentity] | str
    try:
        artefact = verified(spec, reads_weights)
        candidate = artefact.root, describe(spec, artefact)
        origins[artefact.root] = artefact.provenance.base_model, artefact.provenance.parents
    except ManifestError as error:
        candidate = str(error)
    return EligibilityFacts(
        report=opened(found, config.state_dir),
        now=found.now,
        max_age_days=config.gates.max_age_days,
        candidate=candidate,
        numerics=from_arguments(spec),
        spec=spec_digest(spec),
        suite=suite.digest,
        policy=policy,
        baseline=baseline,
        heard=settings(serves),
        origins=origins,
        revocations=found.revocations,
    )


def opened(found: RegistryRecords, state_dir: Path) -> VerifiedReport | ReportError:
    """The report that was named, if a trusted key has signed it; else report_missing or report_signature."""
    asked = found.plan.report
    named = f"there is no report {asked:.80} here" if asked else "no report was named"
    missing = ReportError("report_missing", f"{named}; upload it to /admin/reports")
    if found.report is None:
        return missing
    keys: Mapping[str, Ed25519PublicKey] = {}  # if a key file is malformed, no signature is accepted
    with suppress(KeyFileError):
        keys = trusted([state_dir / KEYS])
    try:
        report = open_report(state_dir / found.report.path, keys)
    except ReportError as error:
        return missing if error.code == "report_missing" else error
    if report.digest != found.report.digest:
        return ReportError("report_signature", f"the report on file is not {asked:.80} any more")
    return report


def verified(spec: EngineSpec, reads_weights: bool = True) -> Artefact:
    """The artefact, if every file that is read agrees with its manifest now. Raises ManifestError."""
    if spec.artefact is None:
        raise ManifestError(f"engines.{spec.name} names no artefact")
    folder = artefacts.folder_of(spec.artefact)
    try:
        found, problems = artefacts.load(folder), artefacts.verify(folder) if reads_weights else ()
    except OSError as error:
        raise ManifestError(str(error)) from None
    if problems:
        raise ManifestError(f"{folder.name} is not what its manifest says: {first_few(problems)}")
    return found
