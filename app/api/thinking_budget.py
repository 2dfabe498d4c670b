"""The limits of one thought, and when the gateway ends it. Pure.

An engine that supports a budget is sent it, and the gateway counts the thought's tokens as well, because some builds ignore
the budget (vLLM #43708, #39573, #54906). For any other engine the gateway enforces the budget; it always enforces a time
limit. How it ends a running thought depends on what the engine's probe found:

    control   a separate request tells the engine to end the thought; the stream continues
    restart   the reply is aborted, and a second request continues from the same tokens of the prompt and
              the closed thought, which the engine has in its prefix cache
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import msgspec

from app.stream.meter import ThoughtMeter
from app.stream.pipeline import Pipeline
from deploy.engine.abilities import Abilities
from deploy.engine.dialect import Thinking
from gates.reply.events import Event, Thought, Usage

SLACK = 16
"""Tokens over its budget that an engine may take: the template's newline, the rest of a character, a step of several tokens."""

Means = Literal["control", "restart"]
Why = Literal["tokens", "time", "overrun"]
"""tokens: the budget, enforced here. time: the time limit. overrun: the engine exceeded its own budget."""


@dataclass(frozen=True, slots=True)
class ThoughtLimit:
    """The limits of a thought. seconds: from the last byte of the request.

    kept: the engine was sent the budget, and exceeds it beyond `tokens`. means: how the gateway ends the thought; None: it
    can only count.
    """

    tokens: int | None
    seconds: float | None
    kept: bool
    means: Means | None


def thought_limit(thinking: Thinking, milliseconds: int | None, abilities: Abilities) -> ThoughtLimit | None:
    """The limit of a request's thought with this engine; None if there is nothing to enforce."""
    if thinking == 0 or (thinking is None and milliseconds is None):
        return None
    means: Means | None = None
    if abilities.ends_thoughts:
        means = "control"
    elif abilities.closing:
        means = "restart"
    kept = abilities.budgets is not False
    tokens = None if thinking is None else thinking + SLACK if kept else thinking
    return ThoughtLimit(tokens, None if milliseconds is None else milliseconds / 1000, kept, means)


class ThoughtPlan(msgspec.Struct, frozen=True):
    """How a request's thought is requested and limited.

    sent: the budget for the engine, never one that it would refuse. closer: the id of the token that ends the thought, for
    engines whose text may lack the tag. metered: the engine must report the number of generated tokens while it generates.
    """

    sent: Thinking
    limit: ThoughtLimit | None = None
    closer: int | None = None

    @property
    def metered(self) -> bool:
        return self.limit is not None or self.closer is not None


def thought_plan(thinking: Thinking, milliseconds: int | None, abilities: Abilities) -> ThoughtPlan:
    """The plan of a request, with this engine."""
    if thinking == 0:
        return ThoughtPlan(0)
    limit = thought_limit(thinking, milliseconds, abilities)
    sent = thinking if limit is None or limit.kept else None
    return ThoughtPlan(sent, limit, abilities.closer if abilities.reasoning_field is None else None)


class ThoughtWatch:
    """Watches one reply until its thought is over. `due` is the reason to end it."""

    def __init__(self, limit: ThoughtLimit) -> None:
        self.limit = limit
        self.meter = ThoughtMeter()
        self.due: Why | None = None
        self.over = False

    def time_is_up(self) -> None:
        """The time limit has passed."""
        self.due = self.due or "time"

    def look(self, events: Sequence[Event], pipeline: Pipeline) -> bool:
        """Whether these events exceed the limit, so that the thought has to be ended now."""
        if any(type(event) is not Thought and type(event) is not Usage for event in events):
            self.over = True
        if self.over:
            return False
        self.meter.pieces = pipeline.tokens
        if self.limit.tokens is not None and self.meter.count >= self.limit.tokens:
            self.due = self.due or ("overrun" if self.limit.kept else "tokens")
            if self.due == "tokens":  # a step may make more than were left
                del self.meter.tokens[self.limit.tokens :]
        return self.due is not None and pipeline.is_thinking and self._can_end

    @property
    def _can_end(self) -> bool:
        """Whether everything needed to end it is known."""
        if self.limit.means == "control":
            return bool(self.meter.reply_id)
        return self.limit.means is None or bool(self.meter.prompt and self.meter.tokens)
