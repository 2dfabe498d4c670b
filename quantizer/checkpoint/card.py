"""Model cards: how a folder was made, from its manifest, and how it behaves, from a gate report about that folder."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from gates.artefact.manifest import Artefact
from gates.contracts.verdict import Verdict
from gates.judge.formatting import plural, title
from gates.report.checks import artefact as must_be_about
from gates.report.markdown import code, escape, fence, markdown
from gates.report.statement import Statement

NVFP4: Final = "hf-nvfp4"
GGUF: Final = "gguf-"
SILENT: Final = "--enable-prompt-tokens-details"


@dataclass(frozen=True, slots=True)
class GateReport:
    """A report that was read. digest: of its bytes. signers: the trusted keys that signed it; empty if no key was
    given."""

    statement: Statement
    digest: str
    signers: tuple[str, ...] = ()


def card(artefact: Artefact, judged: GateReport | None = None) -> str:
    """The card as Markdown. Raises ReportError if the report is of another folder."""
    if judged:
        must_be_about(judged.statement, artefact.root)
    parts = [
        f"# {escape(artefact.name)}, {escape(artefact.format)}",
        _facts(artefact),
        "## How it was made",
        *_making(artefact.provenance.recipe),
        "## What a gate found",
        *(_found(judged) if judged else ["No report: nothing is known of its manners."]),
        "## How it is served",
        *_serving(artefact, judged),
        "## Limits",
        "\n".join(f"* {limit}" for limit in _limits(artefact, judged)),
    ]
    return "\n\n".join(parts) + "\n"


def _table(rows: Iterator[tuple[str, ...]], *heads: str) -> str:
    lines = [heads, tuple("---" for _ in heads), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def _facts(artefact: Artefact) -> str:
    def rows() -> Iterator[tuple[str, str]]:
        origin = artefact.provenance
        yield "root", code(artefact.root)
        if origin.base_model:
            yield "base model", escape(origin.base_model)
        for name, root in sorted(origin.parents.items()):
            yield escape(name), code(root)
        yield (
            "data, by digest",
            code(origin.data_digest) if origin.data_digest else "the manifest does not say",
        )
        yield (
            "size",
            f"{sum(file.size for file in artefact.files) / 1e6:,.1f} MB in {plural(len(artefact.files), 'file')}",
        )
        yield "made", escape(artefact.created)
        if origin.tools:
            yield "with", escape(", ".join(f"{name} {version}" for name, version in origin.tools.items()))

    return _table(rows(), "", "")


# ------------------------------------------------------------------------------------------ making


def _making(recipe: Mapping[str, Any]) -> Iterator[str]:
    """The recipe's method, values and outcome, as recorded in the manifest."""
    if not recipe:
        yield "The manifest does not say how."
        return
    name, words, outcome = (recipe.get(key) for key in ("name", "description", "outcome"))
    if name:
        yield f"Recipe {code(str(name))}" + (f": {escape(str(words))}." if words else ".")
    left = {k: v for k, v in recipe.items() if k not in ("name", "description", "outcome")}
    if left:
        yield fence(json.dumps(left, indent=2, ensure_ascii=False))
    if outcome:
        yield "What came of it, as it was measured then:"
        rows = ((escape(path), escape(value)) for path, value in _leaves(outcome))
        yield _table(rows, "measured", "value")


def _leaves(value: Any, path: str = "") -> Iterator[tuple[str, str]]:
    """The leaves of nested mappings, each with its path. An empty mapping has none."""
    if isinstance(value, Mapping):
        for key, part in value.items():
            yield from _leaves(part, f"{path}, {key}" if path else str(key))
    else:
        yield path, f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)


# ----------------------------------------------------------------------------------------- manners


def _found(judged: GateReport) -> Iterator[str]:
    """The gate's own summary, and what vouches for it."""
    statement = judged.statement
    yield markdown(statement, statement_digest=judged.digest).replace("## ", "### ", 1).rstrip()
    yield "\n".join(
        f"* {kind}: {code(one.digest)}"
        for kind, one in (("suite", statement.suite), ("policy", statement.policy))
    )
    signers = ", ".join(map(code, judged.signers))
    yield f"Signed by {signers}." if signers else "Its signature was not checked."


# ----------------------------------------------------------------------------------------- serving


def _serving(artefact: Artefact, judged: GateReport | None) -> Iterator[str]:
    name = artefact.name
    if artefact.format.startswith(GGUF):
        file = next((f.path for f in artefact.files if f.path.endswith(".gguf")), "FILE.gguf")
        yield _block(f"llama-server --model {file} --alias {name} --jinja")
    else:
        yield "vLLM:"
        yield _block(f"vllm serve . --served-model-name {name} {SILENT}")
        yield "llama-server, after a change of form:"
        kind = "nvfp4" if artefact.format == NVFP4 else "f16"
        made = f"../{name}-{kind}-gguf"
        yield _block(
            f"manners quantize gguf . --out {made} --type {kind}\n"
            f"llama-server --model {made}/*.gguf --alias {name} --jinja"
        )
        yield (
            "vLLM finds the form of the weights in the folder. Tool calls and thoughts need the parsers of the chat "
            f"template (`--tool-call-parser`, `--reasoning-parser`). Without `{SILENT}` the gate counts none of its times."
        )
    if judged:
        engine = judged.statement.candidate.engine
        flags = " ".join(engine.argv)
        how = f"with {code(flags)}" if flags else "with flags that the report does not know"
        yield f"It was judged on {escape(engine.build)}, driver {code(engine.driver)}, {how}."


def _block(lines: str) -> str:
    return f"```sh\n{lines}\n```"


# ------------------------------------------------------------------------------------------ limits


def _limits(artefact: Artefact, judged: GateReport | None) -> Iterator[str]:
    """What is unknown, as far as the two documents show."""
    yield "The root covers every file of the folder, so this card lies beside it and not in it."
    if not artefact.provenance.data_digest:
        yield "The manifest names no data."
    if judged is None:
        yield "No gate has judged it."
        return
    statement = judged.statement
    for verdict, words in ((Verdict.FAIL, "Failed"), (Verdict.INCONCLUSIVE, "Not known")):
        gates = [g for g in statement.decision.gates if g.verdict is verdict]
        yield from (
            f"{words}: {escape(title(g.gate))}, {g.rule}: {escape(g.sentence)}." for g in gates if g.sentence
        )
    if not statement.data:
        yield "The suite was held against no data, so what was learned by heart is not ruled out."
    if statement.harness.dirty:
        yield "The program that measured was not its commit's: files in the checkout had changed."
    host = ", ".join(f"{key} {value}" for key, value in sorted(statement.host.items()))
    yield f"Measured on one host: {escape(host)}."
    yield f"It is as old as its report: {statement.created}."
