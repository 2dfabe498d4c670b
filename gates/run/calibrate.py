"""How many characters of small talk an engine's tokenizer makes a token of; asked of the engine."""

from __future__ import annotations

from typing import Any, Final

from gates.contracts.case import Case, Sampling
from gates.contracts.errors import RunError
from gates.contracts.sample import Key, Sample
from gates.reply.reply import read_reply
from gates.run.context import estimate, grown
from gates.run.http import Timeouts, Wire
from gates.run.request import build, encoded
from gates.run.target import Target, Variant

DEFAULT: Final = Timeouts()
_SHORT, _LONG = 1, 300
"""Sizes of the two conversations, in tokens by the first estimate."""


async def calibrate(target: Target, timeouts: Timeouts = DEFAULT) -> float:
    """Characters a token, to one decimal, so that a resumed run schedules the same requests.

    The difference of two prompts tells it, whatever the template adds; what it adds to each turn is
    in the figure, as it should be.

    Raises:
        RunError: the engine does not answer, or does not say how long a prompt was.
    """
    async with Wire(timeouts) as wire:
        (short, few), (long, many) = [await _measured(wire, target, size) for size in (_SHORT, _LONG)]
    if many <= few:
        raise RunError(f"{target.url} counts {many} tokens for a prompt that is longer than one of {few}")
    return max(round((long - short) / (many - few), 1), 0.1)


async def _measured(wire: Wire, target: Target, size: int) -> tuple[int, int]:
    """Characters and tokens of one prompt."""
    last: dict[str, Any] = {"role": "user", "content": "Good night."}
    messages = grown((last,), (), size, 4.0, 0)
    case = Case("calibrate", (), messages)
    body = build(case, Sampling(max_tokens=1), target, Variant(), "whole")
    attempt = await wire.ask(target, encoded(body))
    key = Key("", target.artefact, target.engine, "", "calibrate", case.id, 0, "whole")
    reply = read_reply(Sample(key, body, attempt.started, attempt.status, reads=tuple(attempt.reads)))
    if reply.prompt_tokens is None:
        why = attempt.fault.detail if attempt.fault else reply.error.message if reply.error else "no usage"
        raise RunError(f"{target.url} does not say how many tokens a prompt has: {why}")
    return estimate(messages, ()), reply.prompt_tokens
