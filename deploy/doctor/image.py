"""Checks of each engine's image: that it is pinned, and fits this machine. Pure."""

from typing import Final

from deploy.core.versions import at_least
from deploy.doctor.evidence import Evidence, ImageFacts
from deploy.doctor.host import is_spark
from deploy.doctor.result import CheckResult, engine_check, fail, ok, unknown, warn
from deploy.engine.spec import PINNED_IMAGE

NAMED: Final = "name the image NAME:vVERSION, and pin it: manners engine pin --pull"
"""How the doctor learns which vLLM an image holds."""
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


def facts_of(evidence: Evidence, engine: str) -> ImageFacts:
    """What is known of an engine's image."""
    return evidence.images.get(engine, ImageFacts())


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
    found, host = facts_of(evidence, engine).architecture, evidence.host.architecture
    if found is None or host is None:
        return unknown("the image is not here, or Docker does not answer", f"docker pull {image}")
    if found != _MACHINES.get(host, host):
        return fail(f"{found} on {host}", f"docker pull --platform linux/{_MACHINES.get(host, host)} IMAGE")
    return ok(found)


@engine_check("image.cuda", _image)
def _cuda(evidence: Evidence, engine: str, image: str) -> CheckResult | None:
    cuda = facts_of(evidence, engine).cuda
    if cuda is None:
        return unknown("its settings name no CUDA version", f"docker image inspect {image}")
    if is_spark(evidence) and not at_least(cuda, CUDA_FLOOR):
        return fail(
            f"CUDA {cuda} has no SM 12.1; the first that has is {CUDA_FLOOR}",
            f"use {_good(evidence, engine)}, which brings CUDA 13",
        )
    return ok(f"CUDA {cuda}")


@engine_check("image.vllm", _image, dialect="vllm")
def _vllm(evidence: Evidence, engine: str, image: str) -> CheckResult | None:
    vllm = facts_of(evidence, engine).vllm
    if not vllm:
        return unknown("its name does not tell its vLLM's version", NAMED)
    fix = f"use {GOOD_IMAGE} or later"
    if not at_least(vllm, VLLM_SAFE):
        return fail(f"{vllm}: runs a checkpoint's code although it is not trusted (CVE-2026-22807)", fix)
    if is_spark(evidence) and not at_least(vllm, VLLM_UMA):
        return warn(f"{vllm} counts unified memory wrong; {VLLM_UMA} does not", fix)
    return ok(vllm)
