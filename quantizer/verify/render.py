"""The report of a check as lines for a terminal: a row for each kind of layer, followed by the findings."""

from collections import defaultdict
from collections.abc import Iterator, Sequence

from quantizer.verify.report import CODES, CheckFinding, CheckReport, Layer, RoundingStats

EXAMPLES = 3  # findings of one code that are printed in full


def lines(report: CheckReport) -> Iterator[str]:
    """Everything that is worth reading on a terminal."""
    yield f"{report.folder}: {report.algorithm}, {len(report.layers)} layers"
    kinds: dict[str, list[Layer]] = defaultdict(list)
    for layer in report.layers:
        kinds[layer.kind].append(layer)
    for kind, layers in sorted(kinds.items()):
        yield f"  {kind:14} {_row(layers)}"
    if len(kinds) > 1:
        yield f"  {'all':14} {_row(report.layers)}"
    yield f"not quantized: {len(report.excluded)} modules with a matrix"
    if report.same or report.changed:
        first = f", first {report.changed[0]}" if report.changed else ""
        yield f"tensors that are not quantized: {report.same} as in the source, {len(report.changed)} changed{first}"
    if report.fit is None:
        yield "the order of the nibbles shows only against a source: --source DIR"
    yield from _findings(report.findings)
    errors = sum(finding.severity == "error" for finding in report.findings)
    yield f"not sound: {errors} errors" if errors else "sound"


def _row(layers: Sequence[Layer]) -> str:
    """Figures of some layers together, by name."""
    low, high = min(x.smallest_scale for x in layers), max(x.largest_scale for x in layers)
    first, last = min(x.tensor_scale for x in layers), max(x.tensor_scale for x in layers)
    row = f"{len(layers):4} layers, block scales {low:.4g} to {high:.4g}, tensor scales {first:.2e} to {last:.2e}"
    if fits := [(layer.fit, layer.name) for layer in layers if layer.fit]:
        total = sum((fit for fit, _ in fits), RoundingStats())
        worst, name = min(fits, key=lambda item: item[0].sqnr_db)
        row += (
            f", SQNR dB {total.sqnr_db:.2f}, worst {worst.sqnr_db:.2f} at {name}, worst gap {total.worst:.3f}"
        )
        row += f", beyond 6 {total.saturated / total.weights:.2%}"
    return row


def _findings(findings: Sequence[CheckFinding]) -> Iterator[str]:
    codes = dict.fromkeys(finding.code for finding in findings)
    for code in sorted(codes, key=lambda code: CODES[code][0]):
        found = [finding for finding in findings if finding.code == code]
        severity, meaning = CODES[code]
        yield f"{severity} {code} ({len(found)}): {meaning}"
        for finding in found[:EXAMPLES]:
            yield f"    {finding.where}" + (f": {finding.detail}" if finding.detail else "")
        if len(found) > EXAMPLES:
            yield f"    and {len(found) - EXAMPLES} more; --json lists all"
