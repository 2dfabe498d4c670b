"""Whether the engines that stand together fit into memory. Pure.

On a GB10 the GPU's memory is the host's, no container limit holds CUDA's part of it, and a full one
wedges the machine until somebody cuts its power (NVIDIA/open-gpu-kernel-modules#1358, vllm#46307).
MemAvailable is the one number that is honest there; nvidia-smi has none.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from deploy.doctor.evidence import Evidence
from deploy.doctor.finding import HostCheck, Said, fail, ok, unknown, warn
from deploy.doctor.flags import value_of
from deploy.doctor.host import GIB, gpu_of, is_spark

FLOOR: Final = 16 * GIB
"""What must stay free on unified memory; community guards use 12 to 16 GiB."""
SMALL_FLOOR: Final = GIB // 2
LOAD: Final = 1.15  # weights while they are loaded, over their size on disk
VLLM_OVERHEAD: Final = int(6.7 * GIB)  # 5.4 to 6.7 GiB were measured (llamastash PR#81)
LLAMA_OVERHEAD: Final = GIB // 4
VLLM_SHARE: Final = 0.92
"""vLLM's --gpu-memory-utilization when nobody says otherwise."""


def weights_of(evidence: Evidence, engine: str) -> int | None:
    """Bytes of an engine's weights; None if its files are not known."""
    model = evidence.models.get(engine)
    if model is None or model.files is None:
        return None
    return sum(f.size for name, f in model.files.items() if name.endswith((".safetensors", ".gguf")))


def need_of(evidence: Evidence, engine: str) -> int | None:
    """Bytes of host memory that an engine takes here; 0 for one that somebody else runs."""
    spec, total = evidence.engines[engine], evidence.host.memory_total
    weights = weights_of(evidence, engine)
    if spec.driver == "url":
        return 0
    if spec.dialect == "vllm":
        if not is_spark(evidence) and gpu_of(evidence) is not None:
            return 0  # the GPU has memory of its own, and vLLM keeps to its share of it
        kv = value_of(spec.args, "--kv-cache-memory-bytes")
        if kv is not None and kv.isdecimal():
            return None if weights is None else int(weights * LOAD) + int(kv) + VLLM_OVERHEAD
        return None if total is None else int(_share(spec.args) * total)
    return None if weights is None else int(weights * LOAD) + LLAMA_OVERHEAD


def _share(args: tuple[str, ...]) -> float:
    try:
        return float(value_of(args, "--gpu-memory-utilization") or VLLM_SHARE)
    except ValueError:
        return VLLM_SHARE


def _needs(evidence: Evidence) -> dict[str, int | None]:
    return {name: need_of(evidence, name) for name in evidence.setting.together if name in evidence.engines}


def _floor(evidence: Evidence) -> int:
    return FLOOR if is_spark(evidence) else SMALL_FLOOR


def _told(needs: Mapping[str, int | None]) -> str:
    return " + ".join(f"{name} {(need or 0) / GIB:.1f}" for name, need in needs.items() if need)


def _plan(evidence: Evidence) -> Said | None:
    needs, total = _needs(evidence), evidence.host.memory_total
    if not any(needs.values()) and None not in needs.values():
        return None
    if total is None:
        return unknown("/proc/meminfo could not be read", "grep MemTotal /proc/meminfo")
    if missing := [name for name, need in needs.items() if need is None]:
        return unknown(
            f"the weights of {', '.join(missing)} are not here", "put the artefact where the file says"
        )
    need, floor = sum(n or 0 for n in needs.values()), _floor(evidence)
    said = (
        f"{_told(needs)} + {floor / GIB:.1f} to spare = {(need + floor) / GIB:.1f} of {total / GIB:.1f} GiB"
    )
    if need + floor <= total:
        return ok(said)
    return fail(said, _smaller(evidence, needs, total - floor))


def _smaller(evidence: Evidence, needs: Mapping[str, int | None], room: int) -> str:
    """The share that would fit, if one is to be had."""
    greedy = [n for n in needs if evidence.engines[n].dialect == "vllm" and needs[n]]
    total = evidence.host.memory_total or 1
    others = sum(need or 0 for name, need in needs.items() if name not in greedy)
    share = int((room - others) / total / max(len(greedy), 1) * 20) / 20
    if not greedy or share < 0.1:
        return "let fewer engines stand at one time: take one out of `live` and `fallback`"
    least = max((weights_of(evidence, n) or 0) * LOAD + VLLM_OVERHEAD for n in greedy) / total
    return f"--gpu-memory-utilization {share:g} or less for {', '.join(greedy)}; its weights need {least:.2f} at least"


def _now(evidence: Evidence) -> Said | None:
    needs, free = _needs(evidence), evidence.host.memory_available
    if not any(needs.values()):
        return None
    if free is None:
        return unknown("/proc/meminfo could not be read", "grep MemAvailable /proc/meminfo")
    need = sum(n or 0 for n in needs.values())
    said = f"{free / GIB:.1f} GiB available now, {need / GIB:.1f} are needed"
    if free - need >= _floor(evidence):
        return ok(said)
    return warn(said, "unless the engines are up already: see who holds it, ps aux --sort=-rss | head")


CHECKS: Final[Mapping[str, HostCheck]] = {"host.memory": _plan, "host.available": _now}
