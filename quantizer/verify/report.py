"""The result of checking an NVFP4 folder: findings with codes, statistics of each layer that can be added up, and both as text.

CODES lists every finding code with its severity and meaning. A folder is sound if no finding is an error.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import astuple, dataclass, field, replace
from operator import add
from typing import Any, Final, Literal

Severity = Literal["error", "warning"]
EXAMPLES = 3  # findings of one code that are printed in full

CODES: Final[dict[str, tuple[Severity, str]]] = {
    # the files
    "link": ("error", "a link is not followed: put the file itself into the folder"),
    "pickle": ("error", "a pickle runs code when it is loaded: leave only safetensors"),
    "bad_json": ("error", "the file is not the JSON that belongs here"),
    "broken_shard": ("error", "the shard is cut off or damaged: copy it again"),
    "missing_shard": ("error", "the index names a shard that is not here"),
    "bad_index": ("error", "the index and the shards do not agree"),
    "duplicate": ("error", "a tensor is in two shards"),
    # the configuration
    "config_missing": ("warning", "one of config.json and hf_quant_config.json does not speak of quantization"),
    "config_mismatch": ("error", "config.json and hf_quant_config.json say different things"),
    "algorithm": ("error", "the algorithm is not one that vLLM serves for this layout"),
    "group_size": ("error", "NVFP4 has a scale for 16 columns, no other number"),
    "unknown_name": ("warning", "the configuration names a module that is not in the shards"),
    "prefix": ("warning", "names of a vision-language model under the configuration of a text model, or the reverse"),
    # modules
    "not_excluded": ("error", "a linear layer is neither quantized nor excluded: a server would misread it"),
    "excluded_but_quantized": ("error", "a layer is quantized and excluded: a server would misread it"),
    "missing_scale": ("error", "a quantized layer lacks a scale"),
    "orphan_scale": ("error", "a scale has no weight"),
    "dtype": ("error", "a tensor has the wrong type"),
    "shape": ("error", "the shapes of a layer do not fit together"),
    "pre_quant_scale": ("error", "vLLM does not apply pre_quant_scale: fold it into the weights"),
    "other_format": ("warning", "a layer of another format was not checked"),
    "fused_mixed": ("error", "a server fuses these layers, so all or none must be quantized"),
    "fused_scales": ("error", "a server fuses these layers under one scale, so theirs must be equal"),
    # values
    "scale_bound": ("error", "a scale is not positive, or a block scale is not between 2^-9 and 448"),
    "not_finite": ("error", "a scale is NaN or infinite"),
    "all_zero": ("warning", "every weight of a layer is zero"),
    # against the source
    "source_missing": ("warning", "the source has no such weight"),
    "source_shape": ("error", "the source's weight has another shape"),
    "dropped": ("warning", "the source has a tensor that the folder lacks"),
    "nibble_order": ("error", "the nibbles are swapped: the even column belongs in the low one"),
    "far_from_source": ("warning", "the weights are far from the source: another model, or rescaled (AWQ)"),
    "not_nearest": ("warning", "weights are not at the nearest point: trained since, or rounded by another rule"),
}  # fmt: skip
"""Finding code to severity and meaning."""


@dataclass(frozen=True, slots=True)
class CheckFinding:
    """One problem or oddity: a code of CODES; the file, tensor or layer; and the details."""

    code: str
    where: str
    detail: str = ""

    @property
    def severity(self) -> Severity:
        return CODES[self.code][0]

    def __str__(self) -> str:
        return f"{self.severity}: {self.where}: {self.detail or CODES[self.code][1]} [{self.code}]"


@dataclass(frozen=True, slots=True)
class RoundingStats:
    """How close a layer is to its source. Can be added up.

    signal, noise: sums of squares of the source and of the difference. saturated: weights beyond 6 steps. not_nearest: weights that
    are not at the nearest grid point. worst: their largest difference, in gaps between grid points; rounding gives at most 0.5.
    """

    weights: int = 0
    signal: float = 0.0
    noise: float = 0.0
    saturated: int = 0
    not_nearest: int = 0
    worst: float = 0.0

    def __add__(self, other: RoundingStats) -> RoundingStats:
        sums = RoundingStats(*map(add, astuple(self), astuple(other)))
        return replace(sums, worst=max(self.worst, other.worst))

    @property
    def sqnr_db(self) -> float:
        """Signal to quantization noise ratio in decibels; infinite for an exact copy."""
        if not self.noise:
            return math.inf
        return 10 * math.log10(self.signal / self.noise) if self.signal else -math.inf


@dataclass(frozen=True, slots=True)
class FineTuneDelta:
    """What quantization left of a fine-tune's change to the weights (DAQ, arXiv 2603.22324). Can be added up.

    moved: weights that the fine-tune changed; kept: with the same sign after quantization. wanted, got: sums of squares of the change
    before and after quantization; product: sum of their products.
    """

    moved: int = 0
    kept: int = 0
    wanted: float = 0.0
    got: float = 0.0
    product: float = 0.0

    def __add__(self, other: FineTuneDelta) -> FineTuneDelta:
        return FineTuneDelta(*map(add, astuple(self), astuple(other)))

    @property
    def sign_kept(self) -> float:
        """The share of changes that keep their sign; 1 if nothing changed."""
        return self.kept / self.moved if self.moved else 1.0

    @property
    def cosine(self) -> float:
        """The cosine between the change before and after quantization; 0 if either is zero."""
        size = math.sqrt(self.wanted) * math.sqrt(self.got)
        return self.product / size if size else 0.0


@dataclass(frozen=True, slots=True)
class Layer:
    """One quantized layer. shape: of the weight it represents, [out, in]. The scales are as stored."""

    name: str
    shape: tuple[int, ...]
    tensor_scale: float
    input_scale: float | None
    smallest_scale: float
    largest_scale: float
    fit: RoundingStats | None = None

    @property
    def kind(self) -> str:
        """The last part of the name, such as `q_proj`."""
        return self.name.rpartition(".")[2]


@dataclass(frozen=True, slots=True)
class CheckReport:
    """The whole check. excluded: modules with a matrix that is not quantized. same, changed: unquantized tensors,
    compared with the source."""

    folder: str
    algorithm: str
    layers: tuple[Layer, ...] = ()
    excluded: tuple[str, ...] = ()
    findings: tuple[CheckFinding, ...] = ()
    same: int = 0
    changed: tuple[str, ...] = field(default=())

    @property
    def sound(self) -> bool:
        return not any(finding.severity == "error" for finding in self.findings)

    @property
    def fit(self) -> RoundingStats | None:
        found = [layer.fit for layer in self.layers if layer.fit]
        return sum(found, RoundingStats()) if found else None


def as_json(report: CheckReport) -> dict[str, Any]:
    """The report as JSON values; infinite numbers become null."""
    return {
        "folder": report.folder,
        "sound": report.sound,
        "algorithm": report.algorithm,
        "findings": [
            {"code": f.code, "severity": f.severity, "where": f.where, "detail": f.detail or CODES[f.code][1]}
            for f in report.findings
        ],
        "fit": _fit(report.fit),
        "layers": [_layer(layer) for layer in report.layers],
        "excluded": list(report.excluded),
        "unquantized": {"same": report.same, "changed": list(report.changed)},
    }


def _layer(layer: Layer) -> dict[str, Any]:
    return {
        "name": layer.name,
        "format": "NVFP4",
        "shape": list(layer.shape),
        "tensor_scale": _finite(layer.tensor_scale),
        "input_scale": _finite(layer.input_scale),
        "scale_range": [_finite(layer.smallest_scale), _finite(layer.largest_scale)],
        "fit": _fit(layer.fit),
    }


def _fit(fit: RoundingStats | None) -> dict[str, Any] | None:
    if fit is None:
        return None
    return {
        "weights": fit.weights,
        "sqnr_db": _finite(fit.sqnr_db),
        "worst_error_gaps": fit.worst,
        "saturated": fit.saturated,
        "not_nearest": fit.not_nearest,
    }


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None


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
    yield from _finding_lines(report.findings)
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


def _finding_lines(findings: Sequence[CheckFinding]) -> Iterator[str]:
    codes = dict.fromkeys(finding.code for finding in findings)
    for code in sorted(codes, key=lambda code: CODES[code][0]):
        found = [finding for finding in findings if finding.code == code]
        severity, meaning = CODES[code]
        yield f"{severity} {code} ({len(found)}): {meaning}"
        for finding in found[:EXAMPLES]:
            yield f"    {finding.where}" + (f": {finding.detail}" if finding.detail else "")
        if len(found) > EXAMPLES:
            yield f"    and {len(found) - EXAMPLES} more; --json lists all"
