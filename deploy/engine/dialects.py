"""The engine dialects: how thinking is switched, and which request fields are accepted.

Data and small functions; `app.api.engine_request` applies them. Sources are in the table's comments. Four
dialects: `vllm`, `llama-server`, `sglang`, and `openai` for anything else that speaks the API.

What they send is parsed in the same way for all dialects (`gates.reply.chunks`):

    thoughts    vLLM `delta.reasoning` (with a reasoning parser; else in the text), older builds,
                llama-server and SGLang `delta.reasoning_content`
    usage       both in a separate chunk after the finish, `choices: []`, if requested
    errors      before the reply: a status and `{"error": {...}}`. In a stream: one such frame; vLLM
                still sends `[DONE]` after it, llama-server nothing
    end         `[DONE]`; an end without it and without a finish_reason is a broken stream
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from gates.contracts.dialect import Dialect

Thinking = int | None
"""0: off. None: on, without a budget. N > 0: on, at most N tokens."""

COMMON_FIELDS = frozenset(
    {
        "messages", "tools", "tool_choice", "parallel_tool_calls", "response_format", "stop", "seed",
        "temperature", "top_p", "presence_penalty", "frequency_penalty", "logit_bias",
        "max_tokens", "max_completion_tokens", "user", "logprobs", "top_logprobs",
    }
)  # fmt: skip
"""Request fields that every engine gets unchanged. Others are the gateway's, or are dropped."""

FORCING_FIELDS = frozenset({"stop", "logit_bias", "min_tokens", "ignore_eos"})
"""Those of an engine's fields with which a request decides words, or the end, of the reply; and `response_format`."""

_SAMPLING = frozenset({"top_k", "min_p", "repetition_penalty", "min_tokens", "ignore_eos"})


@dataclass(frozen=True)
class DialectSpec:
    """One engine family.

    fields: request fields beyond COMMON_FIELDS that it takes.
    thinking: the request fields that make it think, or not.
    separates: it puts thoughts in a separate field whenever thinking is on, so that text at the start of a reply
        need not be held back.
    reasoning_is_answer: with thinking off it may put the answer in the reasoning field.
    prefill: the request fields that make it continue an assistant message at the end instead of answering it.
    health: a path that answers while the process runs, whether or not it computes.
    metrics: the path of its Prometheus metrics (llama-server: only with `--metrics`).
    load: its gauges of running and waiting requests.
    metered: the request fields that make it report the number of generated tokens during generation.
    counted: those that make it state a running count of them in each chunk.
    reports_stop: it says which stop sequence ended a reply.
    logprobs_beside_tools: it sends log-probabilities in a stream that may hold calls.
    """

    fields: frozenset[str]
    thinking: Callable[[Thinking], dict[str, Any]]
    separates: bool
    reasoning_is_answer: bool
    health: str = "/health"
    metrics: str | None = None
    load: tuple[str, ...] = ()
    prefill: Mapping[str, Any] = field(default_factory=dict)
    metered: Mapping[str, Any] = field(default_factory=dict)
    counted: Mapping[str, Any] = field(default_factory=dict)
    reports_stop: bool = True
    logprobs_beside_tools: bool = True


def _vllm_thinking(thinking: Thinking) -> dict[str, Any]:
    """The chat template compares with the boolean false, so "false" and 0 would leave thinking on."""
    fields: dict[str, Any] = {"chat_template_kwargs": {"enable_thinking": thinking != 0}}
    if thinking:
        fields["thinking_token_budget"] = thinking
    return fields


def _llama_thinking(thinking: Thinking) -> dict[str, Any]:
    """`reasoning_format` per request pins where thoughts go, whatever the server's flags say.

    With thinking off, no budget of 0 is sent: a model that opens a thought nevertheless would be forced to
    close it at once and continue thinking in plain text without a tag (seen with
    stranger-nano). Without the budget it closes its own tag, and the stream core removes the thought.
    """
    fields: dict[str, Any] = {
        "chat_template_kwargs": {"enable_thinking": thinking != 0},
        "reasoning_format": "deepseek",
    }
    if thinking:
        fields["reasoning_budget_tokens"] = thinking
    return fields


def _sglang_thinking(thinking: Thinking) -> dict[str, Any]:
    """The template's switch. Its API has no budget: one needs a logits processor, pickled into the request."""
    return {"chat_template_kwargs": {"enable_thinking": thinking != 0}}


def _openai_thinking(thinking: Thinking) -> dict[str, Any]:
    """OpenAI's API has no such field; thoughts are removed from the reply."""
    return {}


DIALECTS: Mapping[Dialect, DialectSpec] = {
    "vllm": DialectSpec(
        fields=_SAMPLING | {"cache_salt", "priority"},
        thinking=_vllm_thinking,
        separates=False,  # only with --reasoning-parser, which a request cannot see
        reasoning_is_answer=True,  # vLLM #53284, #19839
        prefill={"continue_final_message": True, "add_generation_prompt": False},
        metered={"return_token_ids": True},
        metrics="/metrics",
        load=("vllm:num_requests_running", "vllm:num_requests_waiting"),
    ),
    "llama-server": DialectSpec(
        fields=_SAMPLING | {"repeat_penalty", "cache_prompt"},
        thinking=_llama_thinking,
        separates=True,
        reasoning_is_answer=False,
        metered={"timings_per_token": True, "reasoning_control": True},
        counted={"timings_per_token": True},
        reports_stop=False,
        logprobs_beside_tools=False,
        metrics="/metrics",
        load=("llamacpp:requests_processing", "llamacpp:requests_deferred"),
    ),
    "sglang": DialectSpec(
        fields=_SAMPLING | {"cache_salt", "priority"},
        thinking=_sglang_thinking,
        separates=False,  # only with --reasoning-parser
        reasoning_is_answer=True,
        prefill={"continue_final_message": True},
        metrics="/metrics",  # only with --enable-metrics
        load=("sglang:num_running_reqs", "sglang:num_queue_reqs"),
    ),
    "openai": DialectSpec(
        fields=frozenset(),
        thinking=_openai_thinking,
        separates=False,
        reasoning_is_answer=True,
        health="/v1/models",  # the one path that every server of this API has
    ),
}
