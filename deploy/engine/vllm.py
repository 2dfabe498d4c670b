"""vLLM's dialect. Thoughts come as `delta.reasoning` with a reasoning parser (older builds: `reasoning_content`), else in the text."""

import re
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Final

from deploy.core.flags import kv_types
from deploy.engine import questions
from deploy.engine.dialect import DialectSpec, Launch, Thinking, thinking_switch
from deploy.engine.questions import OFF, PROBE_TOOL, Asker, Found
from deploy.engine.samples import SAMPLES
from deploy.engine.spec import EngineSpec
from gates.contracts.numerics import Numerics, Scheme
from gates.decode.decoder import nearest

CLOSER: Final = "</think>"
CLOSING: Final = f"\n{CLOSER}\n\n"
"""The text that ends a thought which the gateway closes, as in the chat template of Qwen3 (https://huggingface.co/Qwen)."""
CLOSING_TOKENS: Final = 64
MEDIA_QUESTION: Final = "What is this?"

VERSION: Final = "0.24.0"
_FLAGS: Final = Path(__file__).with_name("vllm_flags.txt")
"""The flags of one version: others may have more, so an unknown flag is a warning and no error."""

SAMPLING: Final = frozenset({"top_k", "min_p", "repetition_penalty", "min_tokens", "ignore_eos"})
PREFILL: Final = {"continue_final_message": True, "add_generation_prompt": False}

# vLLM logs each kernel that it chose once, and its whole configuration: vllm/model_executor/kernels/linear/__init__.py,
# layers/fused_moe/oracle/nvfp4.py and config/vllm.py of 0.32.
_LINE: Final = r"^(?:\(\w+ pid=\d+\) )?[A-Z]+ \d\d-\d\d \d\d:\d\d:\d\d \[[\w./]+\.py:\d+\] "
_GEMM: Final = re.compile(_LINE + r"Using (\w{1,80}) for NVFP4 GEMM\s*$", re.MULTILINE)
_EXPERTS: Final = re.compile(_LINE + r"Using '(\w{1,80})' NvFp4 MoE backend out of ", re.MULTILINE)
_CONFIG: Final = re.compile(
    _LINE + r"Initializing a V1 LLM engine \([^\n]*?\bkv_cache_dtype=(\w{1,40}), device_config=(\w{1,20})",
    re.MULTILINE,
)
_WEIGHT_ONLY: Final = re.compile(r"Marlin|W4A16", re.IGNORECASE)
_W4A4: Final = re.compile(r"(FlashInfer|Cutlass|B12x|Torch|Fbgemm|Emulation)\w*NvFp4LinearKernel")
"""Not among them: Humming, which does what the checkpoint says, and the backends of experts other than Marlin."""


def _thinking(thinking: Thinking) -> dict[str, Any]:
    return thinking_switch(thinking) | ({"thinking_token_budget": thinking} if thinking else {})


def _arguments(spec: EngineSpec, launch: Launch) -> tuple[str, ...]:
    model = (launch.model,) if launch.serve else ("--model", launch.model)
    return (*model, "--served-model-name", spec.name, *launch.address, *spec.args)


async def _tools(asker: Asker) -> Found:
    """Whether tools are accepted; vLLM refuses callable tools if it was started without a parser."""
    status, said = await asker.chat("Say hello.", tools=[PROBE_TOOL], chat_template_kwargs=OFF, max_tokens=1)
    return {"parses_tools": not (status == 400 and "--tool-call-parser" in str(said))}


async def _closing(asker: Asker) -> Found:
    ids = [await _ids(asker, text) for text in (CLOSING, CLOSER)]
    if max(len(one) for one in ids) > CLOSING_TOKENS:
        return {}
    return {"closing": ids[0], "closer": ids[1][0] if len(ids[1]) == 1 else None}


async def _ids(asker: Asker, text: str) -> tuple[int, ...]:
    body = {"model": asker.model, "prompt": text, "add_special_tokens": False}
    _, said = await asker.post("/tokenize", body)
    return tuple(questions.count(token) for token in said["tokens"])


async def media(asker: Asker) -> Found:
    """The media that it takes, tried with a grey square and a moment of silence: no path of vLLM tells it."""
    return {"media": tuple([medium for medium, part in SAMPLES.items() if await _takes(asker, part)])}


def shown(part: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The conversation that tries one of `SAMPLES`."""
    return [{"role": "user", "content": [part, {"type": "text", "text": MEDIA_QUESTION}]}]


async def _takes(asker: Asker, part: Mapping[str, Any]) -> bool:
    body = {"model": asker.model, "messages": shown(part), "max_tokens": 1, "chat_template_kwargs": OFF}
    try:
        status, said = await asker.post("/v1/chat/completions", body)
        return status == 200 and bool(said["choices"])
    except (ValueError, LookupError, TypeError):
        return False


def _numerics(spec: EngineSpec, log: str, host_gpu: str) -> Numerics:
    linear, experts = sorted(set(_GEMM.findall(log))), sorted(set(_EXPERTS.findall(log)))
    kernels = [*linear, *(f"{name} (experts)" for name in experts)]
    config = _CONFIG.search(log)
    kv_cache, device = config.groups() if config else (stated_kv_cache(spec), None)
    return Numerics(
        kernel=" + ".join(kernels) or None,
        scheme=_scheme(kernels),
        kv_cache=kv_cache,
        gpu={"cuda": host_gpu, "cpu": "none"}.get(device or ""),
    )


def stated_kv_cache(spec: EngineSpec) -> str | None:
    """The KV cache's type in the arguments; None for "auto", which depends on the weights."""
    stated = kv_types(spec.args).get("all", "auto")
    return None if stated == "auto" else stated


def _scheme(kernels: Sequence[str]) -> str | None:
    """What these kernels round; None if the name of one of them does not tell."""
    found = {_scheme_of(name) for name in kernels}
    return None if None in found or not found else " + ".join(sorted(map(str, found)))


def _scheme_of(kernel: str) -> Scheme | None:
    if _WEIGHT_ONLY.search(kernel):
        return "W4A16"
    return "W4A4" if _W4A4.fullmatch(kernel) else None


@cache
def known_flags() -> frozenset[str]:
    """Every long flag, with dashes."""
    lines = _FLAGS.read_text("utf-8").splitlines()
    return frozenset(line for line in lines if line.startswith("--"))


def odd_flag(args: Sequence[str]) -> str | None:
    """The first unknown flag, with the nearest known one. Short flags and values are skipped.

    vLLM accepts underscores for dashes, `--no-` before a switch, and `--config.key` for a key of a JSON value.
    """
    for word in args:
        name = word.partition("=")[0].partition(".")[0].replace("_", "-")
        if (
            not name.startswith("--")
            or name in known_flags()
            or "--" + name.removeprefix("--no-") in known_flags()
        ):
            continue
        hint = nearest(name, known_flags())
        return f"{name} is not a flag of vLLM {VERSION}{hint if 'did you mean' in hint else ''}"
    return None


def tokenize(model: str, text: str) -> dict[str, Any]:
    """The body of a text for `/tokenize`."""
    return {"model": model, "prompt": text, "add_special_tokens": False}


VLLM: Final = DialectSpec(
    fields=SAMPLING | {"cache_salt", "priority"},
    thinking=_thinking,
    separates=False,  # only with --reasoning-parser, which a request cannot see
    reasoning_is_answer=True,  # vLLM #53284, #19839
    prefill=PREFILL,
    metered={"return_token_ids": True},
    questions=(
        _tools,
        questions.budget("thinking_token_budget"),
        questions.thinking_off,
        questions.continues(**PREFILL),
        questions.tokenized_template("prompt"),
        _closing,
        questions.listed_context,
        questions.stated_build("vllm", "/version"),
        media,
    ),
    tokenize=tokenize,
    version=("/version", "version"),
    metrics="/metrics",
    load=("vllm:num_requests_running", "vllm:num_requests_waiting"),
    work=("vllm:prompt_tokens_total", "vllm:generation_tokens_total"),
    reserved=("--host", "--port", "--served-model-name", "--api-key", "--model", "--uds"),
    odd_flag=odd_flag,
    arguments=_arguments,
    entrypoint=(
        "vllm",
        "serve",
    ),  # vLLM's images differ in their entrypoints, and all have `vllm` on their path
    workdir="/tmp",
    takes_share=True,
    numerics=_numerics,
)
