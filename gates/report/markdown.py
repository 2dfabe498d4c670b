"""The report as Markdown, short enough for a pull request. Pure.

Foreign text stands in fences and code spans that are longer than any run of backticks in it, or is escaped.
"""

import re
from typing import Final

from gates.contracts.sample import CANDIDATE
from gates.judge.formatting import title
from gates.report import replies
from gates.report.labels import MARKS, gate_names, gate_verdict, headline, overview_cells, reasons, sentence
from gates.report.replies import ReplyEntry
from gates.report.statement import Statement
from gates.report.texts import TextLookup, no_texts, shorten, visible

WORST: Final = 3  # gates for which a reply is quoted
MAX_TEXT: Final = 400  # characters of it

_SPECIAL: Final = re.compile(r"([\\`*_\[\]<>#!|~&$])")
_BACKTICKS: Final = re.compile(r"`+")


def markdown(statement: Statement, texts: TextLookup = no_texts, *, statement_digest: str = "") -> str:
    """The verdict, a line for each gate, the controls, and the worst reply of the worst gates."""
    parts = [
        f"## {MARKS[statement.verdict]} {statement.verdict.value}: {escape(headline(statement))}",
        "\n".join(
            f"- **{escape(gate)}**: {escape(said)}" if gate else f"- {escape(said)}"
            for gate, said in reasons(statement)
        ),
        _table(statement),
        _controls(statement),
        "\n".join(f"- {escape(said)}" for said in statement.speed),
        *_quotes(statement, texts),
        _bound(statement, statement_digest),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _table(statement: Statement) -> str:
    lines = ["| Gate | Candidate | Baseline | Required | Verdict |", "|---|---|---|---|---|"]
    for name in gate_names(statement):
        verdict, decides = gate_verdict(statement, name)
        word = f"{MARKS[verdict]} {verdict.value}{'' if decides else ' (advisory)'}"
        lines.append(
            "| "
            + " | ".join(escape(cell) for cell in (title(name), *overview_cells(statement, name), word))
            + " |"
        )
    return "\n".join(lines)


def _controls(statement: Statement) -> str:
    controls = statement.decision.controls
    if not controls:
        return "No control was run: nothing shows that this gate can fail."
    held = [escape(control.name) for control in controls if control.holds]
    broken = [f"- **{escape(c.name)}**: {escape(sentence(c.sentence))}" for c in controls if not c.holds]
    said = f"Controls that gave the expected result: {', '.join(held) or 'none'}."
    return "\n".join([said, *(["", "Controls that did not:", "", *broken] if broken else [])])


def _quotes(statement: Statement, texts: TextLookup) -> list[str]:
    """The worst case of each of the first gates that did not pass, and how many more there are."""
    found = replies.entries(statement)
    names = [name for name in found if gate_verdict(statement, name)[0].value != "pass"]
    return [_quote(title(name), found[name], texts) for name in names[:WORST]]


def _quote(gate: str, cases: list[ReplyEntry], texts: TextLookup) -> str:
    worst = cases[0]
    lines = [
        f"**{escape(gate)}**: {replies.count_by_kind(cases)}. {code(worst.case)}"
        + (f": {code(worst.why)}" if worst.why else "")
    ]
    said = texts(worst.case, CANDIDATE)
    if said:
        lines += ["", fence(f"> {shorten(said.prompt, MAX_TEXT)}\n\n{shorten(said.reply, MAX_TEXT)}")]
    return "\n".join(lines)


def _bound(statement: Statement, statement_digest: str) -> str:
    ours, theirs = statement.candidate, statement.baseline
    parts = [
        f"{code(ours.model.name)} {code(ours.model.root)} on {code(ours.engine.name)} ({escape(ours.engine.build)})",
        *([f"computed with {escape(str(ours.numerics))}"] if ours.numerics else ()),
        *([f"writes calls as {code(ours.reply_format)}"] if ours.reply_format else ()),
        f"against {code(theirs.model.name)} {code(theirs.model.root)}",
        f"suite {code(statement.suite.name)}, policy {code(statement.policy.name)}",
        f"{len(statement.samples.lines):,} samples, {statement.created}",
        *(f"with {code(file.name)} {code(file.digest)}" for file in statement.attachments),
    ]
    shown = f" It states {code(statement_digest)}." if statement_digest else ""
    return f"{'; '.join(parts)}. What counts is `report.json`; `report.html` shows all of it.{shown}"


# --------------------------------------------------------------------------------------- escaping


def escape(words: str) -> str:
    """Text on one line, with all Markdown syntax escaped."""
    return _SPECIAL.sub(r"\\\1", " ".join(visible(words).split()))


def code(words: str) -> str:
    """A code span on one line, whatever backticks the text contains."""
    line = " ".join(visible(words).split())
    tick = "`" * (_longest_run(line) + 1)
    pad = " " if line.startswith("`") or line.endswith("`") else ""
    return f"{tick}{pad}{line}{pad}{tick}"


def fence(text: str) -> str:
    """A fenced block, whatever fences the text contains."""
    body = visible(text).rstrip("\n")
    line = "`" * max(3, _longest_run(body) + 1)
    return f"{line}text\n{body}\n{line}"


def _longest_run(text: str) -> int:
    return max((len(run) for run in _BACKTICKS.findall(text)), default=0)
