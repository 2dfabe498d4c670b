"""Builds request bodies from a case, its sampling parameters and the arm's variant. Pure.

Every sampling parameter is set: for missing ones engines use the model's `generation_config.json` (vLLM #43009) or their own.
"""

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from gates.contracts.case import Case, Sampling
from gates.contracts.dialect import Dialect
from gates.contracts.errors import RunError
from gates.contracts.sample import Mode
from gates.run.target import Target, Variant


def build_body(
    case: Case, sampling: Sampling, target: Target, variant: Variant, mode: Mode
) -> dict[str, Any]:
    """The body for `POST /v1/chat/completions`. Raises RunError: the dialect has no field for a parameter, or the variant's extra
    fields would replace one.
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


def with_system(messages: Iterable[Mapping[str, Any]], text: str) -> tuple[Mapping[str, Any], ...]:
    """The messages with `text` appended to their system prompt, or with `text` as the system prompt if there is none."""
    first, *rest = messages = tuple(messages)
    if not text:
        return messages
    if first["role"] != "system":
        return ({"role": "system", "content": text}, *messages)
    return ({**first, "content": f"{first['content']}\n\n{text}"}, *rest)


def encode_body(body: Mapping[str, Any]) -> bytes:
    """The bytes that are sent. Keys keep their order, because chat templates print tools in it."""
    return json.dumps(body, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode()


def body_digest(body: Mapping[str, Any]) -> str:
    """`sha256:` and 64 hex digits over the bytes that are sent."""
    return f"sha256:{hashlib.sha256(encode_body(body)).hexdigest()}"


# ----------------------------------------------------------------------------------------- dialects


def _vllm(sampling: Sampling) -> dict[str, Any]:
    return {
        "top_k": sampling.top_k,
        "min_p": sampling.min_p,
        "repetition_penalty": sampling.repetition_penalty,
    }


_LLAMA_SAMPLERS_OFF: Final = {
    "typical_p": 1.0, "top_n_sigma": -1.0, "xtc_probability": 0.0, "dry_multiplier": 0.0,
    "dynatemp_range": 0.0, "mirostat": 0,
}  # fmt: skip
"""Further samplers of llama-server, which its command line could have enabled."""


_PENALTY_WINDOW: Final = 4096
"""The number of tokens that penalties look back: a whole spoken conversation. Builds of 2026 refuse -1,
which used to mean all tokens, and a very large number costs memory.
"""


def _llama(sampling: Sampling) -> dict[str, Any]:
    """The same in llama-server's fields. Its penalties look back 64 tokens by default, vLLM's all tokens."""
    return {
        "top_k": max(sampling.top_k, 0),  # 0 means all tokens here
        "min_p": sampling.min_p,
        "repeat_penalty": sampling.repetition_penalty,
        "repeat_last_n": _PENALTY_WINDOW,
        **_LLAMA_SAMPLERS_OFF,
    }


_OPENAI_NEUTRAL: Final = {"top_k": (-1, 0), "min_p": (0.0,), "repetition_penalty": (1.0,)}


def _openai(sampling: Sampling) -> dict[str, Any]:
    """OpenAI's API has no fields for these parameters and answers 400 to unknown fields."""
    for name, neutral in _OPENAI_NEUTRAL.items():
        if getattr(sampling, name) not in neutral:
            raise RunError(
                f"an engine of dialect 'openai' cannot be asked with {name} = {getattr(sampling, name)}"
            )
    return {}


_DIALECT_FIELDS: Final[Mapping[Dialect, Callable[[Sampling], dict[str, Any]]]] = {
    "vllm": _vllm,
    "llama-server": _llama,
    "sglang": _vllm,  # the same names
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
        **_DIALECT_FIELDS[dialect](sampling),
    }


def _thinking(dialect: Dialect, on: bool) -> dict[str, Any]:
    """The thinking switch as a JSON boolean: vLLM and SGLang read "false" and 0 as on. llama-server is told where to put reasoning."""
    if dialect == "openai":
        return {}
    switch: dict[str, Any] = {"chat_template_kwargs": {"enable_thinking": on}}
    return switch | ({"reasoning_format": "deepseek"} if dialect == "llama-server" else {})
