"""Checks of what a report proves; promotion and `manners gate verify` call those they need. Each raises ReportError if it fails. Pure."""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from datetime import datetime, timedelta
from itertools import zip_longest
from typing import Final, Literal

from gates.artefact.artefact import Lineage, ModelIdentity, same_lineage
from gates.contracts.errors import ReportError
from gates.contracts.numerics import Numerics, differences, permits
from gates.contracts.verdict import Verdict
from gates.policy.policy import NumericsRule, Policy
from gates.report.statement import EngineIdentity, Pinned, SampleIndex, Statement, parse_time

CLOCK_SKEW: Final = timedelta(minutes=5)
"""How far ahead another machine's clock may be before its report counts as being from the future."""

MAX_SHOWN: Final = 3


def age(statement: Statement, now: datetime, max_age_days: float | None) -> timedelta:
    """The report's age at `now` (an aware time); at most `max_age_days` if given, and not expired."""
    old, why = now - parse_time(statement.created), ""
    if old < -CLOCK_SKEW:
        why = f"the report is of {statement.created}, which is in the future; see the clocks"
    elif max_age_days is not None and old > timedelta(days=max_age_days):
        days = old / timedelta(days=1)
        why = f"the report is {days:.1f} days old; at most {max_age_days:g} are allowed"
    elif statement.expires is not None and now > parse_time(statement.expires):
        why = f"the report expired at {statement.expires}"
    if why:
        raise ReportError("report_stale", why)
    return old


def verdict(statement: Statement) -> None:
    """The verdict is pass, and so are the results that it is based on."""
    decision = statement.decision
    if decision.verdict is not Verdict.PASS:
        why = f": {decision.reasons[0]}" if decision.reasons else ""
        raise ReportError("verdict_not_pass", f"the verdict is {decision.verdict}{why}")
    deciding = [gate for gate in decision.gates if gate.tier != "advisory"]
    faults = [f"{g.gate} ({g.rule}) is {g.verdict}" for g in deciding if g.verdict is not Verdict.PASS]
    faults += [
        f"the control {control.name} did not hold" for control in decision.controls if not control.holds
    ]
    if not deciding:
        faults = ["no gate was measured that could decide it"]
    if faults:
        raise ReportError("verdict_not_pass", f"the verdict is pass, but {faults[0]}")


def complete(statement: Statement, policy: Policy) -> None:
    """Every rule of the policy has a result with its tier, and every control was run: a pass says nothing of gates left out."""
    found = {(r.gate.partition("[")[0], r.rule, r.tier) for r in statement.decision.gates}
    missing = [
        f"{tier} result of {gate} ({rule})"
        for gate, rule, tier in policy.required_results
        if (gate, rule, tier) not in found
    ]
    controls = {(control.name, control.expected) for control in statement.decision.controls}
    missing += [
        f"control {name:.80}" for name, way in policy.required_controls.items() if (name, way) not in controls
    ]
    if missing:
        more = f", and of {len(missing) - 1} more" if missing[1:] else ""
        raise ReportError(
            "verdict_not_pass", f"the report has no {missing[0]}{more}; run the gate again, whole"
        )
    if statement.sequential and policy.sequential == "refused":
        why = f"policy {policy.name} takes no report of a sequential run; allow it there, or run without --sequential"
        raise ReportError("mismatch_policy", why)


def artefact(statement: Statement, root: str, engine: str | None = None) -> None:
    """The report is about the artefact with this root digest, which `engine` of the configuration serves."""
    model, served_by = statement.candidate.model, statement.candidate.engine.name
    if model.root == root:
        return
    why = f", not of {_short(root)}"
    if engine is not None:
        why = f", served by engine {served_by}; engine {engine} serves {_short(root)}. Promote {served_by}, or make a report of this one: "
        why += _gate_run(engine, statement)
    what = f"the report is of artefact {model.name} {_short(model.root)}"
    raise ReportError("mismatch_artefact", what + why)


def _gate_run(engine: str, statement: Statement) -> str:
    return f"manners gate run --candidate {engine} --baseline {statement.baseline.engine.name}"


def pinned(stated: Pinned, digest: str, code: Literal["mismatch_suite", "mismatch_policy"]) -> None:
    """The report was made with the suite, or under the policy, of this digest."""
    if stated.digest != digest:
        made = f"{code.removeprefix('mismatch_')} {stated.name} {_short(stated.digest)}"
        why = f"the report was made with {made}; {_short(digest)} is in force: run the gate again"
        raise ReportError(code, why)


def heard(statement: Statement, settings: Mapping[str, str]) -> None:
    """A verdict on what callers hear was reached with these settings of the model."""
    for key, value in settings.items():
        if statement.judged == "through" and (made := statement.gateway.get(key, value)) != value:
            why = f"the report was made with {key} = {made:.80}; {value:.80} is in force: run the gate again"
            raise ReportError("mismatch_model", why)


def engine(
    statement: Statement,
    found: EngineIdentity,
    code: Literal["mismatch_engine", "mismatch_running"] = "mismatch_engine",
) -> None:
    """The candidate was measured on this engine: driver, dialect, image, arguments, build and model file. Promotion checks what the
    configuration would start (mismatch_engine) and what is running (mismatch_running).
    """
    stated = statement.candidate.engine
    if stated.digest != found.digest:
        ours, theirs = asdict(found), asdict(stated)
        name = next(key for key in theirs if key != "name" and ours[key] != theirs[key])
        was, now = _first_difference(theirs[name], ours[name])
        raise ReportError(code, f"the engine's {name} was {was} in the report and is {now} here")


def numerics(
    statement: Statement, found: Numerics, engine: str, rule: NumericsRule, *, runs: bool
) -> tuple[str, ...]:
    """What computed the answers is what `engine` computes with; else the differences that the policy permits, in words. `runs`:
    `found` is of the running engine; before a start, only part of it is known.
    """
    stated, again = statement.candidate.numerics, f"make a report of it: {_gate_run(engine, statement)}"
    if stated is None:
        if rule.required:
            why = "the report does not say what computed its answers, and the policy requires it"
            raise ReportError("mismatch_numerics", f"{why}; {again}")
        return ()
    found_differences = differences(stated, found, unknown=rule.required and runs)
    if bad := [it for it in found_differences if not permits(rule.may_differ, it.part)]:
        shown, parts = "; ".join(it.words for it in bad), ", ".join(f'"{it.part}"' for it in bad)
        raise ReportError(
            "mismatch_numerics",
            f"the report was made on engine {statement.candidate.engine.name}, which computes otherwise than {engine}:"
            f" {shown}. Where {engine} runs, {again}; or permit it in the policy: [numerics] may_differ = [{parts}]",
        )
    return tuple(it.words for it in found_differences)


def _first_difference(was: object, now: object) -> tuple[str, str]:
    """Two differing values, shortened for a message; of argument lists the first difference."""
    if isinstance(was, tuple) and isinstance(now, tuple):
        was, now = next((a, b) for a, b in zip_longest(was, now) if a != b)
    return f"{was!r:.80}", f"{now!r:.80}"


def stated_lineage(statement: Statement) -> Lineage:
    """Whether both arms are forms of one model, by the digests in the report."""
    return same_lineage(statement.candidate.model, statement.baseline.model, statement.ancestors)


def lineage(statement: Statement) -> None:
    """Candidate and baseline are formats of the same model, computed again from the digests in the report."""
    if not (found := stated_lineage(statement)):
        raise ReportError("baseline_lineage", f"{found.reason}: the gate would compare models, not formats")


def provenance(stated: ModelIdentity, base_model: str | None, parents: Mapping[str, str]) -> None:
    """The report's origin of an artefact agrees with the manifest here; the root digest does not cover it."""
    if (stated.base_model, dict(stated.parents)) != (base_model, dict(parents)):
        why = f"the report states another base model or other parents of {_short(stated.root)} than its manifest"
        raise ReportError("baseline_lineage", why)


def baseline(statement: Statement, root: str | None) -> None:
    """The baseline differs from the candidate and, if given, has this root. The configured baseline may be compared with any of its lineage."""
    ours, theirs = statement.candidate, statement.baseline
    if (ours.model.root, ours.engine.digest) == (theirs.model.root, theirs.engine.digest):
        raise ReportError(
            "baseline_lineage", "the report compares the candidate with itself, which proves nothing"
        )
    if root is not None and root not in (ours.model.root, theirs.model.root):
        is_, wanted = _short(theirs.model.root), _short(root)
        raise ReportError(
            "baseline_lineage", f"the report's baseline is {is_}; the configuration names {wanted}"
        )


def samples(stated: SampleIndex, lines: Iterable[bytes]) -> int:
    """The number of samples, each unchanged since the report was made. `lines` are the file's, with their line breaks."""
    missing = {line.sha256: f"missing or altered: {line.case} ({line.arm})" for line in stated.lines}
    whole, number, faults = hashlib.sha256(), 0, list[str]()
    for number, data in enumerate(lines, start=1):
        whole.update(data)
        if missing.pop(hashlib.sha256(data).hexdigest(), None) is None:
            faults.append(f"line {number} is not the report's")
    faults += missing.values()
    if not faults and f"sha256:{whole.hexdigest()}" != stated.digest:
        faults.append("the samples are the same, but in another order")
    if faults:
        raise ReportError("report_signature", f"the samples are not those of the report: {first_few(faults)}")
    return number


def first_few(faults: Sequence[object]) -> str:
    """The first problems in one line, and how many more there are."""
    more = f" and {len(faults) - MAX_SHOWN} more" if len(faults) > MAX_SHOWN else ""
    return "; ".join(map(str, faults[:MAX_SHOWN])) + more


def _short(digest: str) -> str:
    return digest[:19]
