"""Builds request bodies from a case, its sampling parameters and the arm's variant. Pure.

Every sampling parameter is set: for missing ones engines use the model's `generation_config.json` (vLLM #43009) or their own.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping
from typing import Any

from gates.contracts.case import Case, Sampling
from gates.contracts.dialect import GATE_DIALECTS, Dialect
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
        **GATE_DIALECTS[target.dialect].thinking(variant.thinking),
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


def _sampling(sampling: Sampling, dialect: Dialect) -> dict[str, Any]:
    return {
        "temperature": sampling.temperature,
        "top_p": sampling.top_p,
        "presence_penalty": sampling.presence_penalty,
        "frequency_penalty": sampling.frequency_penalty,
        "seed": sampling.seed,
        "max_tokens": sampling.max_tokens,
        **GATE_DIALECTS[dialect].sampling(sampling),
    }
