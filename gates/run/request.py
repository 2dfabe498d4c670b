"""The request of one ask: a case, the sampling, and the arm's variant, as an engine's body. Pure.

Every sampling parameter is in it. vLLM takes what is left out from the model's
`generation_config.json` (a log line in vLLM #43009 shows temperature 0.6 and top_k 20 put in so),
llama-server from its command line: two arms would then differ by sampler, and not by weights.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from typing import Any, Final

from gates.contracts.case import Case, Sampling
from gates.contracts.errors import RunError
from gates.contracts.sample import Mode
from gates.policy.load import with_system
from gates.run.target import Dialect, Target, Variant


def build(case: Case, sampling: Sampling, target: Target, variant: Variant, mode: Mode) -> dict[str, Any]:
    """The body for `POST /v1/chat/completions`.

    Raises:
        RunError: the dialect has no word for a parameter, or the variant's extra fields would
            replace what is set here.
    """
    body: dict[str, Any] = {
        "model": target.served_model,
        "messages": list(with_system(case.messages, variant.system_suffix)),
        **_sampling(sampling, target.dialect),
        **_thinking(target.dialect, variant.thinking),
        "stream": mode == "stream",
    }
    if mode == "stream":
        body["stream_options"] = {"include_usage": True}
    if case.tools and variant.tools:
        body["tools"] = list(case.tools)
        if case.tool_choice is not None:
            body["tool_choice"] = case.tool_choice
    if clash := body.keys() & variant.extra.keys():
        raise RunError(f"extra fields would replace {', '.join(sorted(clash))}, which the gate pins")
    return {**body, **variant.extra}


def encoded(body: Mapping[str, Any]) -> bytes:
    """The bytes that go out. Keys keep their order: a chat template prints a tool's in it."""
    return json.dumps(body, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode()


def digest(body: Mapping[str, Any]) -> str:
    """`sha256:` and 64 hex digits over the bytes that go out."""
    return f"sha256:{hashlib.sha256(encoded(body)).hexdigest()}"


# ----------------------------------------------------------------------------------------- dialects


def _vllm(sampling: Sampling) -> dict[str, Any]:
    return {
        "top_k": sampling.top_k,
        "min_p": sampling.min_p,
        "repetition_penalty": sampling.repetition_penalty,
    }


_LLAMA_OFF: Final = {
    "typical_p": 1.0, "top_n_sigma": -1.0, "xtc_probability": 0.0, "dry_multiplier": 0.0,
    "dynatemp_range": 0.0, "mirostat": 0,
}  # fmt: skip
"""llama-server's further samplers, which its command line could have switched on."""


_LAST: Final = 4096
"""Tokens that penalties look back: a voice's whole conversation. -1, once all of them, is refused
by builds of 2026, and a very large number is memory that they take."""


def _llama(sampling: Sampling) -> dict[str, Any]:
    """The same by llama-server's words; its penalties look 64 tokens back unless told, vLLM's at all."""
    return {
        "top_k": max(sampling.top_k, 0),  # 0 is all of them here
        "min_p": sampling.min_p,
        "repeat_penalty": sampling.repetition_penalty,
        "repeat_last_n": _LAST,
        **_LLAMA_OFF,
    }


_NEUTRAL: Final = {"top_k": (-1, 0), "min_p": (0.0,), "repetition_penalty": (1.0,)}


def _openai(sampling: Sampling) -> dict[str, Any]:
    """OpenAI's API has no word for these, and answers 400 to a word that it does not know."""
    for name, neutral in _NEUTRAL.items():
        if getattr(sampling, name) not in neutral:
            raise RunError(
                f"an engine of dialect 'openai' cannot be asked with {name} = {getattr(sampling, name)}"
            )
    return {}


_OWN: Final[Mapping[Dialect, Callable[[Sampling], dict[str, Any]]]] = {
    "vllm": _vllm,
    "llama-server": _llama,
    "openai": _openai,
}


def _sampling(sampling: Sampling, dialect: Dialect) -> dict[str, Any]:
    return {
        "temperature": sampling.temperature,
        "top_p": sampling.top_p,
        "presence_penalty": sampling.presence_penalty,
        "frequency_penalty": sampling.frequency_penalty,
        "seed": sampling.seed,
        "max_tokens": sampling.max_tokens,
        **_OWN[dialect](sampling),
    }


def _thinking(dialect: Dialect, on: bool) -> dict[str, Any]:
    """A JSON boolean: vLLM takes "false" and 0 for on. OpenAI's API has no common word for it.

    llama-server is also told where thoughts go, which its command line could have changed.
    """
    if dialect == "openai":
        return {}
    switch: dict[str, Any] = {"chat_template_kwargs": {"enable_thinking": on}}
    return switch | ({"reasoning_format": "deepseek"} if dialect == "llama-server" else {})
