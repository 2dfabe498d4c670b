"""The limit of one thought, and when the gateway ends it. Pure.

An engine that supports a budget is sent it, and the gateway counts the thought's tokens as well, because some builds ignore
the budget (vLLM #43708, #39573, #54906). For any other engine the gateway enforces the budget, if the engine's probe found
how: it aborts the reply, and a second request continues from the same tokens of the prompt and the closed thought, which the
engine has in its prefix cache.
"""

from collections.abc import Sequence
from typing import Literal

import msgspec

from app.stream.meter import ThoughtMeter
from app.stream.pipeline import Pipeline
from deploy.engine.abilities import Abilities
from deploy.engine.dialect import Thinking
from gates.reply.events import Event, Thought, Usage

SLACK = 16
"""Tokens over its budget that an engine may take: the template's newline, the rest of a character, a step of several tokens."""

Why = Literal["tokens", "overrun"]
"""tokens: the budget, enforced here. overrun: the engine exceeded its own budget."""


class ThoughtLimit(msgspec.Struct, frozen=True):
    """The limit of a thought. can_end: the gateway can end the thought; otherwise it counts only."""

    tokens: int
    why: Why
    can_end: bool


class ThoughtPlan(msgspec.Struct, frozen=True):
    """How a request's thought is requested and limited.

    sent: the budget for the engine, never one that it would refuse. limit: None if there is nothing to enforce. closer: the
    id of the token that ends the thought, for engines whose text may lack the tag.
    """

    sent: Thinking
    limit: ThoughtLimit | None = None
    closer: int | None = None

    @property
    def metered(self) -> bool:
        """Whether the engine must report the number of generated tokens while it generates."""
        return self.limit is not None or self.closer is not None


def thought_plan(thinking: Thinking, abilities: Abilities) -> ThoughtPlan:
    """The plan of a request, with this engine."""
    if thinking == 0:
        return ThoughtPlan(0)
    closer = abilities.closer if abilities.reasoning_field is None else None
    if thinking is None:
        return ThoughtPlan(None, None, closer)
    can_end = bool(abilities.closing)
    if abilities.budgets is False:
        return ThoughtPlan(None, ThoughtLimit(thinking, "tokens", can_end), closer)
    return ThoughtPlan(thinking, ThoughtLimit(thinking + SLACK, "overrun", can_end), closer)


class ThoughtWatch:
    """Watches one reply until its thought is over. `due` is the reason to end it."""

    due: Why | None = None
    over = False

    def __init__(self, limit: ThoughtLimit) -> None:
        self.limit = limit
        self.meter = ThoughtMeter()

    def look(self, events: Sequence[Event], pipeline: Pipeline) -> bool:
        """Whether these events exceed the limit, so that the thought has to be ended now, and can be."""
        self.over |= any(type(event) is not Thought and type(event) is not Usage for event in events)
        if self.over:
            return False
        meter, limit = self.meter, self.limit
        meter.pieces = pipeline.tokens
        if meter.count >= limit.tokens:
            self.due = limit.why
            if self.due == "tokens":  # a step may make more than were left
                del meter.tokens[limit.tokens :]
        if self.due is None or not pipeline.is_thinking:
            return False
        return not limit.can_end or bool(meter.prompt and meter.tokens)
