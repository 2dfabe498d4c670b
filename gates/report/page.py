"""The report that people read: one HTML page that needs nothing beside it. Pure.

No script, no font, no picture from anywhere: the page forbids itself all of it by its
Content-Security-Policy, should an escape ever fail. It shows; what counts is `report.json`.
"""

from __future__ import annotations

from typing import Final

from gates.report import evidence, sections
from gates.report.document import SAMPLES_FILE
from gates.report.html import RAW, Html, el, join
from gates.report.look import STYLE
from gates.report.parts import heading
from gates.report.statement import Arm, Engine, Harness, Model, Pinned, Statement
from gates.report.texts import Texts, nothing

POLICY: Final = (
    "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'"
)


def page(
    statement: Statement, texts: Texts = nothing, *, statement_digest: str = "", signers: tuple[str, ...] = ()
) -> str:
    """The page as text. `statement_digest` and `signers` (key ids) say which report.json it shows."""
    name = statement.candidate.model.name
    head = el(
        "head",
        el("meta", charset="utf-8"),
        el("meta", name="viewport", content="width=device-width, initial-scale=1"),
        el("meta", http_equiv="Content-Security-Policy", content=POLICY),
        el("meta", name="referrer", content="no-referrer"),
        el("link", rel="icon", href="data:,"),
        el("title", f"{statement.verdict.value}: {name}"),
        el("style", RAW(STYLE)),
    )
    body = el(
        "main",
        sections.verdict(statement),
        sections.overview(statement),
        sections.gates(statement),
        sections.speed(statement),
        evidence.what_was_said(statement, texts),
        evidence.controls(statement),
        evidence.curves(statement),
        bound(statement),
        footer(statement, statement_digest, signers),
    )
    return f"<!doctype html>\n{el('html', head, el('body', body), lang='en')}\n"


# ------------------------------------------------------------------------------------------ bound


def bound(statement: Statement) -> Html:
    """Everything that the verdict holds for, and for nothing else."""
    rows: list[tuple[str, Html | str]] = [
        *_arm("Candidate", statement.candidate),
        *_arm("Baseline", statement.baseline),
        ("Suite", _pinned(statement.suite)),
        ("Policy", _pinned(statement.policy)),
        ("Samples", _digest(statement.samples.digest)),
        ("Program", _harness(statement.harness)),
        ("Machine", _pairs(statement.host)),
        ("Expires", statement.expires or "when its reader says so"),
    ]
    lead = (
        "The verdict is about these bytes on this engine with these flags. Any other asks for a new report."
    )
    listed = el("dl", join(join((el("dt", k), el("dd", v))) for k, v in rows), class_="card bound")
    return join((heading("What was bound", lead), listed))


def _arm(label: str, arm: Arm) -> list[tuple[str, Html | str]]:
    return [(label, _model(arm.model)), (f"{label}'s engine", _engine(arm.engine))]


def _model(model: Model) -> Html:
    base = f", from {model.base_model}" if model.base_model else ""
    made_of = [_digest(digest, f"{role} ") for role, digest in sorted(model.parents.items())]
    return join((el("div", f"{model.name}, {model.format}{base}"), _digest(model.root), *made_of))


def _engine(engine: Engine) -> Html:
    lines = [*_flags(engine.argv), *(f"{name}={value}" for name, value in sorted(engine.environment.items()))]
    return join((
        el("div", f"{engine.name}: {engine.build}, {engine.dialect} by the {engine.driver} driver"),
        el("div", el("code", engine.image)) if engine.image else None,
        _digest(engine.model_file, "file ") if engine.model_file else None,
        _digest(engine.digest, "all of it "),
        el("pre", "\n".join(lines)) if lines else None,
    ))  # fmt: skip


def _flags(argv: tuple[str, ...]) -> list[str]:
    """A flag with its value on each line."""
    lines: list[str] = []
    for word in argv:
        if word.startswith("-") or not lines or " " in lines[-1]:
            lines.append(word)
        else:
            lines[-1] += f" {word}"
    return lines


def _pinned(pinned: Pinned) -> Html:
    version = "" if pinned.version is None else f" version {pinned.version}"
    return join((el("div", f"{pinned.name}{version}"), _digest(pinned.digest)))


def _harness(harness: Harness) -> Html:
    dirty = ", with changes that are not committed" if harness.dirty else ""
    commit = (
        el("div", el("code", harness.commit), dirty) if harness.commit else el("div", "not from a checkout")
    )
    return join(
        (
            el("div", f"manners {harness.version}"),
            commit,
            el("div", _pairs(harness.tools), class_="soft small"),
        )
    )


def _pairs(pairs: object) -> str:
    return ", ".join(f"{name} {value}" for name, value in sorted(dict(pairs).items()))  # type: ignore[call-overload]


def _digest(digest: str, label: str = "") -> Html:
    return el("div", el("span", label, class_="soft") if label else None, el("code", digest))


def footer(statement: Statement, statement_digest: str, signers: tuple[str, ...]) -> Html:
    """What the page is a view of, and how to ask whether that is genuine."""
    signed = f" Signed by {', '.join(signers)}." if signers else ""
    named = f" It shows the statement {statement_digest}." if statement_digest else ""
    return el(
        "footer",
        el(
            "p",
            f"This page is a view; what counts is report.json beside it.{named}{signed} To ask whether it is genuine:",
        ),
        el(
            "pre",
            f"$ manners gate verify report.json --artefact DIR\n$ sha256sum {SAMPLES_FILE}\n"
            f"{statement.samples.digest.removeprefix('sha256:')}  {SAMPLES_FILE}",
        ),
    )
