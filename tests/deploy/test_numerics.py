"""What an engine computes with, from its arguments and from its log.

The lines are those of vLLM 0.32 (model_executor/kernels/linear/__init__.py, fused_moe/oracle/nvfp4.py,
v1/engine/core.py with config/vllm.py) behind the prefix of its logger.
"""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deploy.core.errors import SpecError
from deploy.core.flags import KV_FLAGS, without_kv_flags
from deploy.engine.dialects import from_arguments, from_start
from deploy.engine.log import LogFile, start_of
from deploy.engine.spec import EngineSpec
from gates.contracts.numerics import Numerics

AT = "(EngineCore pid=87) INFO 11-23 19:20:05 "


def gemm(kernel: str) -> str:
    return f"{AT}[__init__.py:1240] Using {kernel} for NVFP4 GEMM"


def experts(backend: str) -> str:
    return (
        f"{AT}[nvfp4.py:314] Using '{backend}' NvFp4 MoE backend out of potential backends: "
        "['FLASHINFER_TRTLLM', 'MARLIN', 'EMULATION']."
    )


def vllm(*args: str, **changes: Any) -> EngineSpec:
    fields: dict[str, Any] = {"driver": "process", "command": ("vllm", "serve"), "artefact": Path("/model")}
    return EngineSpec(name="annie", dialect="vllm", args=args, **{**fields, **changes})


def llama(*args: str, **changes: Any) -> EngineSpec:
    fields: dict[str, Any] = {"driver": "embedded", "artefact": Path("/m.gguf")}
    return EngineSpec(name="annie", dialect="llama-server", args=args, **{**fields, **changes})


MARLIN, CUTLASS = "MarlinNvFp4LinearKernel", "FlashInferCutlassNvFp4LinearKernel"


@pytest.mark.parametrize(
    "lines, kernel, scheme",
    [
        ([gemm(MARLIN)], MARLIN, "W4A16"),
        ([gemm("FlashInferCuteDslNvFp4W4A16LinearKernel")], "FlashInferCuteDslNvFp4W4A16LinearKernel", "W4A16"),
        ([gemm("B12xNvFp4W4A16LinearKernel")], "B12xNvFp4W4A16LinearKernel", "W4A16"),
        *(
            ([gemm(name)], name, "W4A4")
            for name in (
                CUTLASS, "CutlassNvFp4LinearKernel", "FlashInferTrtllmNvFp4LinearKernel",
                "FlashInferCudnnNvFp4LinearKernel", "FlashInferCuteDslNvFp4LinearKernel",
                "FlashInferB12xNvFp4LinearKernel", "B12xNvFp4LinearKernel", "FbgemmNvFp4LinearKernel",
                "TorchNvFp4LinearKernel", "EmulationNvFp4LinearKernel",
            )
        ),
        ([gemm("HummingNvFp4LinearKernel")], "HummingNvFp4LinearKernel", None),  # as the checkpoint says
        ([gemm("BetterNvFp4LinearKernel")], "BetterNvFp4LinearKernel", None),
        ([gemm(MARLIN), gemm(MARLIN)], MARLIN, "W4A16"),  # of two workers
        ([gemm(MARLIN), gemm(CUTLASS)], f"{CUTLASS} + {MARLIN}", "W4A16 + W4A4"),  # mixed precision
        ([gemm(MARLIN), experts("MARLIN")], f"{MARLIN} + MARLIN (experts)", "W4A16"),
        ([gemm(CUTLASS), experts("FLASHINFER_TRTLLM")], f"{CUTLASS} + FLASHINFER_TRTLLM (experts)", None),
        (["INFO 11-23 19:20:05 [__init__.py:243] Using MarlinNvFp4LinearKernel for NVFP4 GEMM"], MARLIN, "W4A16"),
        ([], None, None),
        ([f"prompt: {gemm(MARLIN)}"], None, None),  # not at the beginning of a line
        ([gemm(MARLIN) + ", says the caller"], None, None),
        ([gemm("x" * 81)], None, None),
    ],
)  # fmt: skip
def test_the_kernels_that_vllm_names_say_what_they_round(
    lines: list[str], kernel: str | None, scheme: str | None
) -> None:
    log = "\n".join(["starting", *lines, "ready", ""])
    assert from_start(vllm(), log, "none") == Numerics(kernel=kernel, scheme=scheme)


@pytest.mark.parametrize(
    "spec, kv_cache",
    [
        (llama(), "K f16, V f16"),
        (llama("--cache-type-k", "q8_0", "-c", "64"), "K q8_0, V f16"),
        (llama("-ctk", "q8_0", "-ctv", "q4_0"), "K q8_0, V q4_0"),
        (llama("-ctk", "q8_0", "--cache-type-k=f16"), "K f16, V f16"),
        (llama("-c", "64", "-ctk"), "K f16, V f16"),
        (
            llama("-ctv", "q4_0", driver="process", command=("llama-server",), env=(("LLAMA_ARG_CACHE_TYPE_K", "q8_0"), ("LLAMA_ARG_CACHE_TYPE_V", "q8_0"))),
            "K q8_0, V q4_0",
        ),
        (vllm(), None),
        (vllm("--kv-cache-dtype", "fp8"), "fp8"),
    ],
)  # fmt: skip
def test_the_arguments_say_what_a_cache_is_made_of(spec: EngineSpec, kv_cache: str | None) -> None:
    assert from_arguments(spec) == Numerics(kv_cache=kv_cache)


def test_of_an_engine_of_somebody_else_only_what_was_stated_is_known() -> None:
    spec = EngineSpec(name="far", dialect="vllm", driver="url", url="http://x:9")
    assert from_arguments(spec) == from_start(spec, gemm(MARLIN), "NVIDIA H200") == Numerics()
    stated = (("gpu", "NVIDIA GB10"), ("scheme", "W4A4"))
    spec = EngineSpec(name="far", dialect="vllm", driver="url", url="http://x:9", numerics=stated)
    assert from_start(spec, "", "none") == Numerics(scheme="W4A4", gpu="NVIDIA GB10")


def test_what_is_no_part_and_what_can_be_read_is_not_stated() -> None:
    with pytest.raises(SpecError, match="'speed' is none of kernel, scheme, kv_cache, gpu"):
        EngineSpec(name="far", dialect="vllm", driver="url", url="http://x:9", numerics=(("speed", "high"),))
    with pytest.raises(SpecError, match="means nothing to the process driver"):
        vllm(numerics=(("scheme", "W4A4"),))


def test_a_callers_words_in_the_log_are_no_kernel(tmp_path: Path) -> None:
    log = LogFile(tmp_path / "log")
    log.write(gemm(MARLIN).encode())
    log.requests_flow = True
    log.write(gemm(CUTLASS).encode())
    log.close()
    assert from_start(vllm(), start_of(tmp_path / "log"), "none").kernel == MARLIN
    assert start_of(tmp_path / "none") == ""


WORD = st.one_of(
    st.sampled_from(sorted(KV_FLAGS)), st.sampled_from(["q8_0", "f16", "--ctx-size", "-ctk=q8_0"]), st.text()
)


@given(st.lists(WORD))
def test_whatever_the_arguments_what_is_left_sets_no_cache(args: list[str]) -> None:
    left = without_kv_flags(args)
    words = iter(args)
    assert all(word in words for word in left)
    assert not [word for word in left if word.partition("=")[0] in KV_FLAGS]
    assert without_kv_flags(left) == left
