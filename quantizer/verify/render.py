"""The report of a check as a table for the terminal, with one row for each kind of layer, followed by the findings."""

from collections import defaultdict
from collections.abc import Iterator, Sequence

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from quantizer.verify.report import CODES, CheckFinding, CheckReport, FineTuneDelta, Layer, RoundingStats

EXAMPLES = 3  # findings of one code that are printed in full


def render(report: CheckReport) -> RenderableType:
    """Everything that is worth reading on a terminal."""
    return Group(*_table(report), *_remarks(report), *_findings(report.findings), _verdict(report))


def _table(report: CheckReport) -> Iterator[RenderableType]:
    kinds: dict[str, list[Layer]] = defaultdict(list)
    for layer in report.layers:
        kinds[layer.kind].append(layer)
    table = Table(
        title=f"{report.folder}: {report.algorithm}, {len(report.layers)} layers", title_justify="left"
    )
    for heading in _headings(report):
        table.add_column(heading, justify="left" if heading == "kind" else "right")
    for kind, layers in sorted(kinds.items()):
        table.add_row(kind, *_cells(report, layers))
    if len(kinds) > 1:
        table.add_section()
        table.add_row("all", *_cells(report, report.layers))
    yield table


def _headings(report: CheckReport) -> list[str]:
    headings = ["kind", "layers", "block scales", "tensor scales"]
    if report.fit:
        headings += ["SQNR dB", "worst", "at", "worst gap", "beyond 6"]
    if report.delta:
        headings += ["sign kept", "delta cosine"]
    return headings


def _cells(report: CheckReport, layers: Sequence[Layer]) -> list[str]:
    low, high = min(x.smallest_scale for x in layers), max(x.largest_scale for x in layers)
    first, last = min(x.tensor_scale for x in layers), max(x.tensor_scale for x in layers)
    cells = [str(len(layers)), f"{low:.4g} to {high:.4g}", f"{first:.2e} to {last:.2e}"]
    return cells + _fit_cells(report, layers) + _delta_cells(report, layers)


def _fit_cells(report: CheckReport, layers: Sequence[Layer]) -> list[str]:
    fits = [(layer.fit, layer) for layer in layers if layer.fit]
    if not fits:
        return [""] * (5 if report.fit else 0)
    total = sum((fit for fit, _ in fits), RoundingStats())
    worst, layer = min(fits, key=lambda item: item[0].sqnr_db)
    beyond = f"{total.saturated / total.weights:.2%}"
    return [f"{total.sqnr_db:.2f}", f"{worst.sqnr_db:.2f}", layer.name, f"{total.worst:.3f}", beyond]


def _delta_cells(report: CheckReport, layers: Sequence[Layer]) -> list[str]:
    deltas = [layer.delta for layer in layers if layer.delta]
    if not deltas:
        return [""] * (2 if report.delta else 0)
    total = sum(deltas, FineTuneDelta())
    return [f"{total.sign_kept:.1%}", f"{total.cosine:.3f}"]


def _remarks(report: CheckReport) -> Iterator[RenderableType]:
    yield Text(f"not quantized: {len(report.excluded)} modules with a matrix")
    if report.same or report.changed:
        text = (
            f"tensors that are not quantized: {report.same} as in the source, {len(report.changed)} changed"
        )
        yield Text(text + (f", first {report.changed[0]}" if report.changed else ""))
    if report.fit is None:
        yield Text("the order of the nibbles shows only against a source: --source DIR")


def _findings(findings: Sequence[CheckFinding]) -> Iterator[RenderableType]:
    codes = list(dict.fromkeys(finding.code for finding in findings))
    for code in sorted(codes, key=lambda code: CODES[code][0]):
        found = [finding for finding in findings if finding.code == code]
        severity, meaning = CODES[code]
        style = "bold red" if severity == "error" else "yellow"
        yield Text.assemble((f"{severity} {code}", style), f" ({len(found)}): {meaning}")
        for finding in found[:EXAMPLES]:
            yield Text(f"    {finding.where}" + (f": {finding.detail}" if finding.detail else ""))
        if len(found) > EXAMPLES:
            yield Text(f"    and {len(found) - EXAMPLES} more; --json lists all")


def _verdict(report: CheckReport) -> RenderableType:
    errors = sum(finding.severity == "error" for finding in report.findings)
    if errors:
        return Text(f"not sound: {errors} errors", style="bold red")
    return Text("sound", style="bold green")
