"""Checks of the machine: architecture, GPU, driver, memory, Docker. Pure.

Each bound has its source beside it; docs/spark.md holds the measurements from a DGX Spark.
"""

from typing import Final

from deploy.core.versions import at_least, numbers
from deploy.doctor.evidence import Evidence, GgufFacts, Gpu, ModelFacts
from deploy.doctor.result import CheckResult, check, fail, ok, unknown, warn
from deploy.memory.sizing import GIB, EngineLoad, Memory, engine_need

SMI: Final = "install NVIDIA's driver; nvidia-smi must answer"

DRIVER_FLOOR: Final = "580.65.06"  # NVIDIA/NemoClaw#8173
LOSSY_KERNEL: Final = "6.17.0-1031"
LOSSY_DRIVERS: Final = ("580.173", "610.43")
"""With LOSSY_KERNEL, these drivers lose 8 to 9 GiB of unified memory at boot (GLM-5.3-Flash-EXL3-2x-DGX-Sparks#47)."""
TOOLKIT_FLOOR: Final = "1.18"  # CDI by default: nvidia-container-toolkit#1227, #251, #48
IMAGE_BYTES: Final = 22 * GIB
"""Assumed for an image of unknown size; vllm-openai has 20.3 GB."""


def on_gpu(evidence: Evidence) -> bool:
    """Whether the machine has, or is to have, GPU engines; otherwise the GPU checks do not apply."""
    engines = evidence.engines.values()
    started = [e for e in engines if e.driver == "docker" or (e.driver == "process" and e.dialect == "vllm")]
    return bool(evidence.host.gpus) or any(e.gpu != "none" for e in started)


def is_spark(evidence: Evidence) -> bool:
    """Whether the GPU is a GB10; without nvidia-smi, an ARM machine with containerized engines is taken for one."""
    if evidence.host.gpus is None:
        return on_gpu(evidence) and evidence.host.architecture == "aarch64"
    return any(g.capability == "12.1" or "GB10" in g.name for g in evidence.host.gpus)


def gpu_of(evidence: Evidence) -> Gpu | None:
    """The first GPU."""
    return next(iter(evidence.host.gpus or ()), None)


@check("host.gpu", applies=on_gpu)
def _gpu(evidence: Evidence) -> CheckResult | None:
    gpu = gpu_of(evidence)
    if gpu is None or gpu.capability is None:
        return unknown("nvidia-smi reports no GPU", f"{SMI} --query-gpu=name,compute_cap")
    said = f"{gpu.name}, SM {gpu.capability}"
    if at_least(gpu.capability, "10.0"):
        return ok(f"{said}: FP4 tensor cores")
    if at_least(gpu.capability, "8.0"):
        return warn(
            f"{said}: no FP4 tensor cores, so NVFP4 runs as four-bit weights with sixteen-bit activations",
            "use the profile hopper-w4a16, or BF16; its times say nothing about a Spark",
        )
    return fail(f"{said}: no kernel for NVFP4", "serve the GGUF with llama-server")


@check("host.driver", applies=on_gpu)
def _driver(evidence: Evidence) -> CheckResult | None:
    gpu, kernel = gpu_of(evidence), evidence.host.kernel
    if gpu is None or gpu.driver is None:
        return unknown("the driver's version is not known", SMI)
    if not at_least(gpu.driver, DRIVER_FLOOR):
        return fail(f"{gpu.driver}; CUDA 13 needs {DRIVER_FLOOR}", "sudo apt install nvidia-driver-580-open")
    lossy = any(numbers(gpu.driver)[:2] == numbers(bad) for bad in LOSSY_DRIVERS)
    if is_spark(evidence) and lossy and kernel is not None and kernel.startswith(LOSSY_KERNEL):
        return warn(
            f"{gpu.driver} with kernel {kernel} loses 8 to 9 GiB of unified memory at its start",
            "boot kernel 6.17.0-1026 with driver 580.159.03",
        )
    return ok(f"{gpu.driver}{f', kernel {kernel}' if kernel else ''}")


@check("host.swap", applies=on_gpu)
def _swap(evidence: Evidence) -> CheckResult | None:
    swaps = evidence.host.swaps
    if swaps is None:
        return unknown("/proc/swaps could not be read", "swapon --show")
    disks = [swap for swap in swaps if "zram" not in swap.name]
    if disks:
        names = ", ".join(f"{swap.name} ({swap.size / GIB:.0f} GiB)" for swap in disks)
        why = (
            "unified memory that is swapped wedges the host"
            if is_spark(evidence)
            else "it hides a full memory"
        )
        return warn(f"{names}: {why}", "sudo swapoff -a, and take it out of /etc/fstab")
    return ok("zram only" if swaps else "off")


@check("host.toolkit", applies=on_gpu)
def _toolkit(evidence: Evidence) -> CheckResult | None:
    version = evidence.host.toolkit
    if version is None:
        return unknown("nvidia-ctk is not here", "sudo apt install nvidia-container-toolkit")
    if not at_least(version, TOOLKIT_FLOOR):
        return fail(
            f"{version}: containers lose the GPU at a systemctl daemon-reload, and /health still answers 200",
            f"sudo apt install nvidia-container-toolkit ({TOOLKIT_FLOOR} or later)",
        )
    return ok(version)


@check("host.docker")
def _docker(evidence: Evidence) -> CheckResult | None:
    if not any(e.driver == "docker" for e in evidence.engines.values()):
        return None
    version = evidence.host.docker
    if version is None:
        return unknown(
            "the Docker daemon does not answer",
            "sudo systemctl start docker; sudo usermod -aG docker $USER; pip install docker==7.2.0",
        )
    return ok(version)


@check("host.disk")
def _disk(evidence: Evidence) -> CheckResult | None:
    if not any(e.driver == "docker" for e in evidence.engines.values()):
        return None
    free = evidence.host.disk_free
    sizes = [image.size for image in evidence.images.values() if image.size]
    need = 2 * max(sizes, default=IMAGE_BYTES)
    if free is None:
        return unknown(
            "the free space for images is not known", "df -h $(docker info -f '{{.DockerRootDir}}')"
        )
    said = f"{free / GIB:.0f} GiB free for images, twice the largest is {need / GIB:.0f}"
    return ok(said) if free >= need else fail(said, "docker image prune; docker builder prune")


@check("host.nvcc")
def _nvcc(evidence: Evidence) -> CheckResult | None:
    """/usr/bin/nvcc of a DGX Spark is CUDA 12.0, and FlashInfer compiles SM 12.1 kernels with it (docs/spark.md)."""
    if not is_spark(evidence):
        return None
    found = evidence.host.nvccs
    if found is None:
        return unknown("nvcc was not looked for", "nvcc --version; ls /usr/local/cuda*/bin/nvcc")
    if not found:
        return ok("none on the host; engines in containers bring their own")
    first = found[0]
    if at_least(first.release, "12.9"):
        return ok(f"{first.path}, CUDA {first.release}")
    bare = [n for n, e in evidence.engines.items() if e.dialect == "vllm" and e.driver in ("url", "process")]
    said = f"{first.path} is CUDA {first.release}, which does not know compute_121a"
    newer = next((n for n in found if at_least(n.release, "12.9")), None)
    home = newer.path.removesuffix("/bin/nvcc") if newer else "/usr/local/cuda-13"
    fix = f"export CUDA_HOME={home} PATH={home}/bin:$PATH where vLLM runs outside a container"
    if bare:
        return fail(f"{said}: FlashInfer's first kernel fails in {', '.join(bare)}", fix)
    return warn(f"{said}; containers bring their own", fix)


# ------------------------------------------------------------------------------------------- memory

LESS: Final = "a smaller --gpu-memory-utilization or --ctx-size, or fewer engines at one time: take one out of `live` and `fallback`"


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
    return ok(said) if need + floor <= total else fail(said, LESS)
