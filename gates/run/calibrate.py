"""Measures how many characters of a conversation make one token in an engine's tokenizer."""

from typing import Any

from gates.contracts.case import Case, Sampling
from gates.contracts.errors import RunError
from gates.reply.reply import read_body
from gates.run.conversation import estimate, pad_conversation
from gates.run.http import GATE_LIMITS, ReplyLimits, RequestTimeouts, TimedClient
from gates.run.request import build_body, encode_body
from gates.run.target import Target, Variant

_SHORT, _LONG = 1, 300
"""Sizes of the two conversations, in tokens by the first estimate."""


async def calibrate(target: Target, limits: ReplyLimits = GATE_LIMITS) -> float:
    """Characters per token, rounded so that a resumed run schedules the same requests; from the difference of two prompts, which
    cancels the template's constant part. Raises RunError: no answer, or no length of a prompt.
    """
    client = TimedClient(RequestTimeouts(), limits)
    (short, few), (long, many) = [await _measured(client, target, size) for size in (_SHORT, _LONG)]
    if many <= few:
        raise RunError(f"{target.url} counts {many} tokens for a prompt that is longer than one of {few}")
    return max(round((long - short) / (many - few), 1), 0.1)


async def _measured(client: TimedClient, target: Target, size: int) -> tuple[int, int]:
    """Characters and tokens of one prompt."""
    last: dict[str, Any] = {"role": "user", "content": "Good night."}
    messages = pad_conversation((last,), (), size, 4.0, 0)
    case = Case("calibrate", (), messages)
    body = build_body(case, Sampling(max_tokens=1), target, Variant(), "whole")
    attempt = await client.ask(target, encode_body(body))
    reply = read_body(attempt.reads, attempt.status, attempt.fault)
    if reply.prompt_tokens is None:
        why = attempt.fault.detail if attempt.fault else reply.error.message if reply.error else "no usage"
        raise RunError(f"{target.url} does not say how many tokens a prompt has: {why}")
    return estimate(messages, ()), reply.prompt_tokens
