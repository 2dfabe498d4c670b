"""The quantization scheme of a folder, read from the two places where ModelOpt writes it, which must agree.

`hf_quant_config.json` ({"quantization": {"quant_algo", "group_size", "exclude_modules", "quantized_layers"}}) and
`quantization_config` in `config.json` (with `ignore` for `exclude_modules`). An entry excludes a module if it matches its name with
fnmatch's wildcards, or is a substring of it: `model.layers.1` also excludes `model.layers.10` (vLLM's `is_layer_excluded`).
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any, Final, NamedTuple

from quantizer.nvfp4.blocks import BLOCK
from quantizer.verify.folder import Folder, FolderError
from quantizer.verify.report import CheckFinding

MIXED: Final = "MIXED_PRECISION"
W4A4: Final = "NVFP4"
W4A16: Final = "W4A16_NVFP4"
OURS: Final = (W4A4, W4A16)
"""Variants of NVFP4 whose layers are checked."""
UNSERVED: Final = ("NVFP4_AWQ", "NVFP4_SVD")
"""Variants of NVFP4 with parts that vLLM cannot load."""


PRODUCER: Final = {"name": "modelopt", "version": "0.47.0"}
"""vLLM rejects a hf_quant_config.json with any other producer; the version is that of the layout."""


class SchemeSection(NamedTuple):
    """Where a scheme is stored: the file, the object in it, and the key of its exclusions."""

    file: str
    key: str
    exclude: str


SECTIONS: Final = (
    SchemeSection("hf_quant_config.json", "quantization", "exclude_modules"),
    SchemeSection("config.json", "quantization_config", "ignore"),
)


@dataclass(frozen=True, slots=True)
class Scheme:
    """algorithm: of the whole model. exclude: patterns. layers: module to algorithm, in a mixed model."""

    algorithm: str
    exclude: tuple[str, ...]
    layers: Mapping[str, str]

    def of(self, module: str) -> str | None:
        """The algorithm that the scheme gives to a module; None if the module is not quantized."""
        if self.algorithm == MIXED:
            return self.layers.get(module)
        return None if any(matches(pattern, module) for pattern in self.exclude) else self.algorithm


def config_groups(algorithm: str) -> dict[str, Any]:
    """`config_groups` of config.json for one of OURS, as ModelOpt writes it."""
    numbers: dict[str, Any] = {"dynamic": False, "num_bits": 4, "type": "float", "group_size": BLOCK}
    inputs = {} if algorithm == W4A16 else {"input_activations": numbers}
    return {"group_0": {**inputs, "weights": numbers, "targets": ["Linear"]}}


def matches(pattern: str, module: str) -> bool:
    """Whether an entry of the exclusions covers a module."""
    return pattern in module or fnmatchcase(module, pattern)


def read_scheme(folder: Folder) -> tuple[Scheme, list[CheckFinding]]:
    """The scheme of a folder, and the findings about it. Raises FolderError if there is none of ModelOpt's."""
    method = _object(folder.config.get("quantization_config")).get("quant_method", "modelopt")
    if method != "modelopt":
        raise FolderError(f"{folder.path}: quantized by {method!a}; this checks ModelOpt's layout of NVFP4")
    findings: list[CheckFinding] = []
    first = _section(folder.quant_config, SECTIONS[0], findings)
    second = _section(folder.config, SECTIONS[1], findings)
    scheme = first or second
    if scheme is None:
        broken = [
            f" ({finding.where}: {finding.detail})"
            for finding in folder.findings
            if finding.code == "bad_json"
        ]
        raise FolderError(
            f"{folder.path}: neither hf_quant_config.json nor config.json names a quant_algo{''.join(broken[:1])}"
        )
    return scheme, [*findings, *_compare(first, second), *_judge(folder, scheme)]


def _section(
    document: Mapping[str, Any], place: SchemeSection, findings: list[CheckFinding]
) -> Scheme | None:
    section = _object(document.get(place.key))
    algorithm = section.get("quant_algo")
    if not isinstance(algorithm, str):
        return None
    exclude = section.get(place.exclude) or []
    if not isinstance(exclude, list) or not all(isinstance(pattern, str) for pattern in exclude):
        findings.append(CheckFinding("bad_json", place.file, f"{place.exclude} must be a list of names"))
        exclude = []
    layers = _object(section.get("quantized_layers"))
    algorithms = {name: str(_object(layer).get("quant_algo")) for name, layer in layers.items()}
    return Scheme(algorithm, tuple(sorted(exclude)), algorithms)


def _object(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _compare(first: Scheme | None, second: Scheme | None) -> Iterable[CheckFinding]:
    if first is None or second is None:
        yield CheckFinding("config_missing", "hf_quant_config.json" if first is None else "config.json")
    elif first.algorithm != second.algorithm:
        detail = f"the algorithm is {first.algorithm} there and {second.algorithm} in config.json"
        yield CheckFinding("config_mismatch", "hf_quant_config.json", detail)
    elif first != second:
        apart = {*first.exclude} ^ {*second.exclude} or {*first.layers} ^ {*second.layers} or first.layers
        detail = f"the lists of layers differ from config.json's, first in {min(apart)}"
        yield CheckFinding("config_mismatch", "hf_quant_config.json", detail)


def _judge(folder: Folder, scheme: Scheme) -> Iterable[CheckFinding]:
    algorithms = {scheme.algorithm} if scheme.algorithm != MIXED else set(scheme.layers.values())
    for algorithm in sorted(algorithms & set(UNSERVED)):
        yield CheckFinding(
            "algorithm", "quant_algo", f"vLLM knows no {algorithm}: fold its scales and export NVFP4"
        )
    if not algorithms & {*OURS, *UNSERVED}:
        yield CheckFinding(
            "algorithm", "quant_algo", f"{', '.join(sorted(algorithms)) or scheme.algorithm} is not NVFP4"
        )
    size = _object(folder.quant_config.get("quantization")).get("group_size")
    if size not in (None, BLOCK):
        yield CheckFinding("group_size", "hf_quant_config.json", f"group_size is {size}, NVFP4's is {BLOCK}")
