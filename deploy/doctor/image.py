"""Checks of each engine's image: that it is pinned, and has kernels for this GPU. Pure."""

from typing import Final

from deploy.core.versions import at_least
from deploy.doctor.evidence import Evidence, ImageContents, ImageFacts
from deploy.doctor.host import is_spark
from deploy.doctor.result import CheckResult, engine_check, fail, ok, unknown, warn
from deploy.engine.spec import PINNED_IMAGE

PROBE: Final = "manners doctor --probe"
"""Starts the image once, without a network, and caches its answer by digest."""
VLLM_SAFE: Final = "0.18"
"""Earlier versions run a checkpoint's code without --trust-remote-code (CVE-2026-22807, CVE-2026-27893)."""
VLLM_UMA: Final = "0.24"
"""Earlier versions measure or release the memory of integrated GPUs wrongly (vllm#35356, vllm#45179)."""
GOOD_IMAGE: Final = "vllm/vllm-openai:v0.24.0-ubuntu2404"
GOOD_LLAMA: Final = "ghcr.io/ggml-org/llama.cpp:server-cuda13"
CUDA_FLOOR: Final = "12.9"  # the first that knows sm_121 (flashinfer#3170)
_MACHINES: Final = {"aarch64": "arm64", "x86_64": "amd64"}


def _good(evidence: Evidence, engine: str) -> str:
    return GOOD_LLAMA if evidence.engines[engine].dialect == "llama-server" else GOOD_IMAGE


def _image(evidence: Evidence, engine: str) -> str | None:
    """The image's name, if this engine runs in one."""
    spec = evidence.engines[engine]
    return (spec.image or "") if spec.driver == "docker" else None


def _inside(evidence: Evidence, engine: str) -> ImageContents | None:
    """The image's contents, unknown if it was not probed. None: the engine does not run in a container."""
    if _image(evidence, engine) is None:
        return None
    return evidence.images.get(engine, ImageFacts()).inside or ImageContents()


def _inside_on_spark(evidence: Evidence, engine: str) -> ImageContents | None:
    return _inside(evidence, engine) if is_spark(evidence) else None


@engine_check("image.pinned", _image)
def _pinned(evidence: Evidence, engine: str, image: str) -> CheckResult | None:
    pin = evidence.engines[engine].pin or image
    if PINNED_IMAGE.fullmatch(pin):
        return ok(f"sha256:{pin.rpartition('sha256:')[2][:12]}{', by engines.lock' if pin != image else ''}")
    return fail(
        f"{image or 'no image'}: a tag can be moved to other bytes after the gate has passed it",
        f"manners engine pin {engine} --pull, or write NAME@sha256:DIGEST",
    )


@engine_check("image.nightly", _image)
def _nightly(evidence: Evidence, engine: str, image: str) -> CheckResult | None:
    """TTFT was 90 ms with one nightly build and 1 to 4 s with the next day's (docs/spark.md)."""
    name = image.partition("@")[0].rpartition("/")[2]
    if "nightly" in name:
        return fail(
            f"{name}: another program every night; TTFT went from 90 ms to 1-4 s between two of them",
            f"name {_good(evidence, engine)}, then manners engine pin {engine} --pull",
        )
    return ok(f"{name}: no nightly build")


@engine_check("image.architecture", _image)
def _architecture(evidence: Evidence, engine: str, image: str) -> CheckResult | None:
    found, host = evidence.images.get(engine, ImageFacts()).architecture, evidence.host.architecture
    if found is None or host is None:
        return unknown("the image is not here, or Docker does not answer", f"docker pull {image}")
    if found != _MACHINES.get(host, host):
        return fail(f"{found} on {host}", f"docker pull --platform linux/{_MACHINES.get(host, host)} IMAGE")
    return ok(found)


@engine_check("image.cuda", _inside)
def _cuda(evidence: Evidence, engine: str, inside: ImageContents) -> CheckResult | None:
    if inside.cuda is None:
        return unknown("its CUDA version is not known", PROBE)
    if is_spark(evidence) and not at_least(inside.cuda, CUDA_FLOOR):
        return fail(
            f"CUDA {inside.cuda or 'none'} has no SM 12.1; the first that has is {CUDA_FLOOR}",
            f"use {_good(evidence, engine)}, which brings CUDA 13",
        )
    return ok(f"CUDA {inside.cuda}")


@engine_check("image.kernels", _inside_on_spark)
def _kernels(evidence: Evidence, engine: str, inside: ImageContents) -> CheckResult | None:
    """Whether torch's or ggml's kernels were compiled for this GPU."""
    llama = evidence.engines[engine].dialect == "llama-server"
    archs = inside.ggml_archs if llama else inside.torch_archs
    if archs is None:
        return unknown("for which GPUs it was compiled is not known", PROBE)
    said = f"{'ggml' if llama else 'torch'} was compiled for {', '.join(archs) or 'no GPU'}"
    if any(arch.startswith(("sm_12", "compute_12", "12")) for arch in archs):
        return ok(said)
    return fail(f"{said}: 'no kernel image' at the first token", f"use {_good(evidence, engine)}")


@engine_check("image.vllm", _inside, dialect="vllm")
def _vllm(evidence: Evidence, engine: str, inside: ImageContents) -> CheckResult | None:
    if not inside.vllm:
        return unknown("its vLLM version is not known", PROBE)
    fix = f"use {GOOD_IMAGE} or later"
    if not at_least(inside.vllm, VLLM_SAFE):
        return fail(
            f"{inside.vllm}: runs a checkpoint's code although it is not trusted (CVE-2026-22807)", fix
        )
    if is_spark(evidence) and not at_least(inside.vllm, VLLM_UMA):
        return warn(f"{inside.vllm} counts unified memory wrong; {VLLM_UMA} does not", fix)
    return ok(inside.vllm)


def has_sm121(archs: tuple[str, ...]) -> bool:
    """Whether compiled kernels run on SM 12.1: its own, or the family's ("120f", "12.0f")."""
    return any(
        arch.removeprefix("sm_").rstrip("a") in ("121", "12.1", "120f", "12.0f", "121f") for arch in archs
    )


@engine_check("image.flashinfer", _inside_on_spark, dialect="vllm")
def _flashinfer(evidence: Evidence, engine: str, inside: ImageContents) -> CheckResult | None:
    """With kernels for SM 10.0 only, SM 12.1 gets generic ones with ten times the overhead (docs/spark.md)."""
    if inside.flashinfer is None:
        return unknown("whether it has FlashInfer is not known", PROBE)
    fix = (
        f"use {GOOD_IMAGE}, or install flashinfer-jit-cache of the same version in the image; "
        "then --attention-backend FLASHINFER"
    )
    if not inside.flashinfer:
        return fail("no FlashInfer: FP4 runs on generic kernels", fix)
    archs = inside.flashinfer_archs
    if archs is not None and has_sm121(archs):
        return ok(f"{inside.flashinfer}, compiled for {', '.join(archs)}")
    held = (
        "which kernels it has is not known"
        if archs is None
        else f"kernels for {', '.join(archs) or 'no GPU'}"
    )
    if inside.nvcc and at_least(inside.nvcc, CUDA_FLOOR):
        return warn(
            f"{inside.flashinfer}, {held}: SM 12.1 is compiled at first use, up to 10 minutes without a word",
            f"{fix}; keep its cache in a volume",
        )
    return fail(f"{inside.flashinfer}, {held}, and nothing that could compile SM 12.1", fix)
