"""Checks that the engines that run at the same time fit into memory, by `deploy.memory.sizing`. Pure."""

from typing import Final

from deploy.doctor.evidence import Evidence, GgufFacts, ModelFacts
from deploy.doctor.host import gpu_of, is_spark
from deploy.doctor.result import CheckResult, check, fail, ok, unknown
from deploy.memory.sizing import GIB, EngineLoad, Memory, engine_need

FIX: Final = "a smaller --gpu-memory-utilization or --ctx-size, or fewer engines at one time: take one out of `live` and `fallback`"


def weights_of(model: ModelFacts | None) -> int | None:
    """Bytes of a model's weights; None if its files are unknown or missing."""
    if model is None or not model.files:
        return None
    return sum(f.size for name, f in model.files.items() if name.endswith((".safetensors", ".gguf")))


def need_of(evidence: Evidence, engine: str) -> int | None:
    """Bytes of host memory that an engine needs; 0 for the url driver, None if unknown."""
    spec, total, model = evidence.engines[engine], evidence.host.memory_total, evidence.models.get(engine)
    weights = weights_of(model)
    if spec.driver == "url":
        return 0
    if weights is None or total is None:
        return None
    gguf = (model and model.gguf) or GgufFacts()
    load = EngineLoad(
        dialect=spec.dialect,
        driver=spec.driver,
        weights=weights,
        total=total,
        args=spec.args,
        env=spec.env,
        kv_values=gguf.kv_values or 0,
        context=gguf.context or 0,
        cpu=spec.gpu == "none",
        own_memory=gpu_of(evidence) is not None and not is_spark(evidence),
    )
    return engine_need(load)


def _needs(evidence: Evidence) -> dict[str, int | None]:
    return {name: need_of(evidence, name) for name in evidence.setting.together if name in evidence.engines}


@check("host.memory")
def _plan(evidence: Evidence) -> CheckResult | None:
    needs, total = _needs(evidence), evidence.host.memory_total
    if not any(needs.values()) and None not in needs.values():
        return None
    if total is None:
        return unknown("/proc/meminfo could not be read", "grep MemTotal /proc/meminfo")
    if missing := [name for name, need in needs.items() if need is None]:
        return unknown(
            f"the weights of {', '.join(missing)} are not here", "put the artefact where the file says"
        )
    need, floor = sum(n or 0 for n in needs.values()), Memory(total, total).floor
    told = " + ".join(f"{name} {(n or 0) / GIB:.1f}" for name, n in needs.items() if n)
    said = f"{told} + {floor / GIB:.1f} to spare = {(need + floor) / GIB:.1f} of {total / GIB:.1f} GiB"
    return ok(said) if need + floor <= total else fail(said, FIX)
