"""What each kind of engine understands: how thinking is switched, and what may be asked for.

Data and small functions; `app.api.engine_request` applies them. Sources are in the table's comments. Three
dialects: `vllm`, `llama-server`, and `openai` for anything else that speaks the API.

What they send is read without asking which of them it is (`app.stream.chunks`):

    thoughts    vLLM `delta.reasoning` (with a reasoning parser; else in the text), older builds and
                llama-server `delta.reasoning_content`
    usage       both in a chunk of its own behind the finish, `choices: []`, when asked for
    errors      before the reply: a status and `{"error": {...}}`. In a stream: one such frame; behind
                vLLM's comes a `[DONE]` all the same, behind llama-server's nothing
    end         `[DONE]`; an end without it and without a finish_reason is a broken stream
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from deploy.engine.spec import Dialect

Thinking = int | None
"""0: off. None: on, without a budget. N > 0: on, at most N tokens."""

COMMON_FIELDS = frozenset(
    {
        "messages", "tools", "tool_choice", "parallel_tool_calls", "response_format", "stop", "seed",
        "temperature", "top_p", "presence_penalty", "frequency_penalty", "logit_bias",
        "max_tokens", "max_completion_tokens", "user",
    }
)  # fmt: skip
"""Fields of a request that go to every engine unchanged. All others are ours, or go nowhere."""

_SAMPLING = frozenset({"top_k", "min_p", "repetition_penalty", "min_tokens", "ignore_eos"})


@dataclass(frozen=True)
class DialectSpec:
    """One engine family.

    fields: request fields beyond COMMON_FIELDS that it takes.
    thinking: the request fields that make it think, or not.
    separates: it puts thoughts in a field of their own whenever it is asked to think, so that text
        at the start of a reply needs no guard.
    reasoning_is_answer: with thinking off it may put the answer in the reasoning field.
    prefill: the request fields that make it go on with an assistant's last turn, where it would
        answer that turn otherwise.
    health: answers while the process lives, whether or not it computes. metrics: Prometheus text
        (llama-server: only with `--metrics`). load: its gauges of requests in work and waiting.
    metered: the request fields that make it tell how many tokens it has made, while it makes them.
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


def _vllm_thinking(thinking: Thinking) -> dict[str, Any]:
    """A JSON boolean and nothing else: "false" and 0 leave thinking on (wire.md A.3)."""
    fields: dict[str, Any] = {"chat_template_kwargs": {"enable_thinking": thinking != 0}}
    if thinking:
        fields["thinking_token_budget"] = thinking
    return fields


def _llama_thinking(thinking: Thinking) -> dict[str, Any]:
    """`reasoning_format` per request pins where thoughts go, whatever the server's flags say.

    Off sends no budget of 0 as a belt: a model that opens a thought all the same is then made to
    close it at once and goes on thinking in plain text, where no tag gives it away (seen with
    stranger-nano). Left alone it closes its own tag, and the filter takes the thought out.
    """
    fields: dict[str, Any] = {
        "chat_template_kwargs": {"enable_thinking": thinking != 0},
        "reasoning_format": "deepseek",
    }
    if thinking:
        fields["reasoning_budget_tokens"] = thinking
    return fields


def _openai_thinking(thinking: Thinking) -> dict[str, Any]:
    """No common word for it; a model that thinks regardless is filtered."""
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
        metrics="/metrics",
        load=("llamacpp:requests_processing", "llamacpp:requests_deferred"),
    ),
    "openai": DialectSpec(
        fields=frozenset(),
        thinking=_openai_thinking,
        separates=False,
        reasoning_is_answer=True,
        health="/v1/models",  # the one path that every server of this API has
    ),
}
