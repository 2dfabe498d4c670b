"""What an engine computes with, from its arguments and from what it logs as it starts. Pure.

vLLM logs each kernel that it chose once ("Using MarlinNvFp4LinearKernel for NVFP4 GEMM") and its whole
configuration (kv_cache_dtype, device_config); sources: vllm/model_executor/kernels/linear/__init__.py,
layers/fused_moe/oracle/nvfp4.py and config/vllm.py of 0.32. Only what was logged before the first request
may be read here: a later line could quote a caller. llama.cpp computes with the types of the file, and has the
types of its KV cache from its arguments.
"""

import re
from collections.abc import Sequence
from typing import Final

from deploy.engine.spec import EngineSpec
from gates.contracts.numerics import PARTS, Numerics, Scheme

KV_FLAGS: Final = {
    "--cache-type-k": "K", "-ctk": "K", "--cache-type-v": "V", "-ctv": "V",
    "--kv-cache-dtype": "all", "--kv_cache_dtype": "all",
}  # fmt: skip
"""The flags that set a KV cache's type, and what of it they set."""

_LLAMA_VARIABLES: Final = {"LLAMA_ARG_CACHE_TYPE_K": "K", "LLAMA_ARG_CACHE_TYPE_V": "V"}
_LINE: Final = r"^(?:\(\w+ pid=\d+\) )?[A-Z]+ \d\d-\d\d \d\d:\d\d:\d\d \[[\w./]+\.py:\d+\] "
_GEMM: Final = re.compile(_LINE + r"Using (\w{1,80}) for NVFP4 GEMM\s*$", re.MULTILINE)
_EXPERTS: Final = re.compile(_LINE + r"Using '(\w{1,80})' NvFp4 MoE backend out of ", re.MULTILINE)
_CONFIG: Final = re.compile(
    _LINE + r"Initializing a V1 LLM engine \([^\n]*?\bkv_cache_dtype=(\w{1,40}), device_config=(\w{1,20})",
    re.MULTILINE,
)
_REFERENCE: Final = re.compile(
    r"^manners-reference computes with kernel=(\w{1,80}) scheme=(W4A4|W4A16) kv_cache=(\w{1,40}) gpu=([^\n]{1,80})$",
    re.MULTILINE,
)
"""`manners quantize serve` (quantizer/reference/server.py); the parts in the order of PARTS."""
_WEIGHT_ONLY: Final = re.compile(r"Marlin|W4A16", re.IGNORECASE)
_W4A4: Final = re.compile(r"(FlashInfer|Cutlass|B12x|Torch|Fbgemm|Emulation)\w*NvFp4LinearKernel")
"""Not among them: Humming, which does what the checkpoint says, and the backends of experts other than Marlin."""


def from_arguments(spec: EngineSpec) -> Numerics:
    """What the configuration alone says, before a start; for an engine that somebody else runs, what was stated."""
    if spec.driver == "url":
        return Numerics(**dict(spec.numerics or ()))
    types = _kv_types(spec.args)
    if spec.dialect == "llama-server":
        named = {_LLAMA_VARIABLES[key]: value for key, value in spec.env or () if key in _LLAMA_VARIABLES}
        types = {"K": "f16", "V": "f16", **named, **types}
        return Numerics(kv_cache=f"K {types['K']}, V {types['V']}")
    stated = types.get("all", "auto")  # what it takes for "auto" depends on the weights
    return Numerics(kv_cache=None if stated == "auto" else stated)


def from_start(spec: EngineSpec, log: str, host_gpu: str) -> Numerics:
    """What runs, from its log until the first request; `host_gpu` is the GPU of the machine that it runs on."""
    planned = from_arguments(spec)
    if spec.driver == "url" or spec.dialect == "llama-server":
        return planned
    if spec.dialect == "openai":
        return _stated(log) or planned
    if spec.dialect != "vllm":  # SGLang's log names no kernel of a quantized layer
        return planned
    linear, experts = sorted(set(_GEMM.findall(log))), sorted(set(_EXPERTS.findall(log)))
    kernels = [*linear, *(f"{name} (experts)" for name in experts)]
    config = _CONFIG.search(log)
    kv_cache, device = config.groups() if config else (planned.kv_cache, None)
    return Numerics(
        kernel=" + ".join(kernels) or None,
        scheme=_scheme(kernels),
        kv_cache=kv_cache,
        gpu={"cuda": host_gpu, "cpu": "none"}.get(device or ""),
    )


def _stated(log: str) -> Numerics | None:
    """What an engine of reference says of itself; None of another server."""
    found = _REFERENCE.search(log)
    return Numerics(**dict(zip(PARTS, found.groups(), strict=True))) if found else None


def _scheme(kernels: Sequence[str]) -> str | None:
    """What these kernels round; None if that does not follow from the name of one of them."""
    found = {_scheme_of(name) for name in kernels}
    return None if None in found or not found else " + ".join(sorted(map(str, found)))


def _scheme_of(kernel: str) -> Scheme | None:
    if _WEIGHT_ONLY.search(kernel):
        return "W4A16"
    return "W4A4" if _W4A4.fullmatch(kernel) else None


def without_kv_flags(args: Sequence[str]) -> tuple[str, ...]:
    """The arguments without those that set the KV cache's type."""
    return tuple(word for word, flag in _flagged(args) if flag not in KV_FLAGS)


def _kv_types(args: Sequence[str]) -> dict[str, str]:
    """The types by what they are of; the last flag counts."""
    found: dict[str, str] = {}
    for word, flag in _flagged(args):
        if flag in KV_FLAGS and word != flag:
            found[KV_FLAGS[flag]] = word.removeprefix(f"{flag}=")
    return found


def _flagged(args: Sequence[str]) -> list[tuple[str, str]]:
    """Each word with the KV flag that it is, or is the value of; with "" if it is neither."""
    pairs: list[tuple[str, str]] = []
    pending = ""
    for word in args:
        name = word.partition("=")[0]
        flag = pending or (name if name in KV_FLAGS else "")
        pairs.append((word, flag))
        pending = word if not pending and word in KV_FLAGS else ""
    return pairs
