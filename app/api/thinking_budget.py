"""The limits of one thought, and when the gateway ends it. Pure.

An engine that supports a budget is sent it, and its thought is counted here all the same, because some builds
ignore theirs (vLLM #43708, #39573, #54906). For any other the gateway enforces the budget, and a time limit
always. How a running thought is ended depends on what the engine supported when it was tried:

    control   a request of its own tells the engine to end the thought; the stream goes on
    restart   the reply is given up, and the engine goes on from the very tokens of the prompt and
              the thought, closed: one more request, which finds them in its prefix cache
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import msgspec

from app.stream.events import Event, Thought, Usage
from app.stream.meter import ThoughtMeter
from app.stream.pipeline import Pipeline
from deploy.engine.abilities import Abilities
from deploy.engine.dialects import Thinking

SLACK = 16
"""Tokens over its budget that an engine may take before we call it broken: the newline that the
template wrote, the rest of a character, a step that makes several tokens at once."""

Means = Literal["control", "restart"]
Why = Literal["tokens", "time", "overrun"]
"""tokens: the budget, kept from here. time: the answer was due. overrun: the engine broke its own."""


@dataclass(frozen=True, slots=True)
class ThoughtLimit:
    """What a thought may take. `seconds` count from the request's last byte in.

    kept: the engine was sent the budget, and `tokens` is what it can have taken only by breaking
    it. means: how it is ended; None: it can only be counted.
    """

    tokens: int | None
    seconds: float | None
    kept: bool
    means: Means | None


def thought_limit(thinking: Thinking, milliseconds: int | None, abilities: Abilities) -> ThoughtLimit | None:
    """The limit of a request's thought, with this engine; None when there is none to keep."""
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
    """How a request's thought is asked for and limited.

    sent: what the engine is sent (never a budget that it would refuse). closer: the id of
    the token that ends the thought, where the text may lack the tag. metered: the engine must report
    the tokens that it makes, while it makes them.
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
    """Looks at one reply until its thought is over. `due` says why it is to end."""

    def __init__(self, limit: ThoughtLimit) -> None:
        self.limit = limit
        self.meter = ThoughtMeter()
        self.due: Why | None = None
        self.over = False

    def time_is_up(self) -> None:
        """The answer should have begun."""
        self.due = self.due or "time"

    def look(self, events: Sequence[Event], pipeline: Pipeline) -> bool:
        """Whether the thought is to be ended now, after these events."""
        if any(type(event) is not Thought and type(event) is not Usage for event in events):
            self.over = True
        if self.over:
            return False
        self.meter.pieces(pipeline.tokens)
        if self.limit.tokens is not None and self.meter.count >= self.limit.tokens:
            self.due = self.due or ("overrun" if self.limit.kept else "tokens")
            if self.due == "tokens":  # a step may have made more than were left
                del self.meter.tokens[self.limit.tokens :]
        return self.due is not None and pipeline.is_thinking and self._can_end

    @property
    def _can_end(self) -> bool:
        """Whether what the means needs is known."""
        if self.limit.means == "control":
            return bool(self.meter.reply_id)
        return self.limit.means is None or bool(self.meter.prompt and self.meter.tokens)
