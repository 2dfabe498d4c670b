"""Pads conversations with small talk to a given number of tokens. Pure.

All messages differ, because engines cache prefixes and speculate on repetition. Sizes are estimates by characters per token.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

Messages = Sequence[Mapping[str, Any]]
CHARS_PER_TOKEN: Final = 4.0
"""English text in today's vocabularies; Kannada needs more tokens."""

_CONTEXT_MARGIN: Final = 1.25  # how far an estimate may be too low without exceeding the context

SMALL_TALK: Final = (
    ("I was up before the sun today.", "That is early. Did you at least get to see the sunrise?"),
    ("The neighbour's dog barked half the night.", "That sounds tiring. I hope tonight is quieter."),
    ("I think I will make lentil soup for lunch.", "Lentil soup is a good choice on a day like this."),
    ("My sister says hello, by the way.", "How kind of her. Please say hello back from me."),
    ("I could not find my reading glasses.", "They like to hide on the kitchen table or by the bed."),
    ("The train was late again this morning.", "I am sorry to hear that. Did you still arrive in time?"),
    ("We planted tomatoes on the balcony.", "Lovely. With enough sun you may have some by late summer."),
    ("I am reading a book about lighthouses.", "Lighthouses have wonderful stories. Are you enjoying it?"),
    ("The old bicycle finally broke down.", "It served you for a long time. Can the chain be repaired?"),
    ("Remind me to thank Ravi for the mangoes.", "Of course. He always picks the sweetest ones."),
    ("It has been raining since Tuesday.", "The garden will be glad, even if the laundry is not."),
    ("I am trying to learn the violin.", "That takes patience. A few minutes every day is enough."),
    ("We had guests and the house is a mess.", "Start with one room, and the rest will feel easier."),
    ("The doctor told me to walk more.", "A short walk after dinner is a gentle way to begin."),
    ("I dreamed that I could breathe under water.", "What a peaceful dream. Did you see any fish?"),
    ("Grandmother's recipe has no amounts in it.", "The best ones rarely do. You will know by the taste."),
    ("My phone battery does not last the day.", "Lowering the brightness often helps more than anything."),
    ("There is a new bakery on the corner.", "Fresh bread nearby is dangerous and wonderful at once."),
    ("I want to paint the hallway yellow.", "Yellow will make it feel sunny, even in winter."),
    ("The meeting today lasted three hours.", "That is a long one. I hope something was decided."),
)


def estimate(messages: Messages, tools: Messages) -> int:
    """The approximate number of characters of a prompt: its messages' texts, and its tools as JSON."""
    said = sum(len(str(message.get("content") or "")) for message in messages)
    return said + (len(json.dumps(list(tools))) if tools else 0)


def pad_conversation(
    messages: Messages, tools: Messages, tokens: int, chars_per_token: float, turn: int
) -> tuple[Mapping[str, Any], ...]:
    """The conversation with numbered small talk after its system prompt, about `tokens` in all, at least one exchange, from `turn` on."""
    begin = next(i for i, message in enumerate(messages) if message["role"] != "system")
    left = tokens * chars_per_token - estimate(messages, tools)
    talk: list[Mapping[str, Any]] = []
    while left > 0 or not talk:
        asked, answered = SMALL_TALK[turn % len(SMALL_TALK)]
        again = turn // len(SMALL_TALK)
        if again:
            asked = f"Day {again + 1}. {asked}"
        talk += ({"role": "user", "content": asked}, {"role": "assistant", "content": answered})
        left -= len(asked) + len(answered)
        turn += 1
    return (*messages[:begin], *talk, *messages[begin:])


def with_nonce(messages: Messages, nonce: str) -> tuple[Mapping[str, Any], ...]:
    """The conversation with the nonce at the beginning of its first user message."""
    at = next(i for i, message in enumerate(messages) if message["role"] == "user")
    first = {**messages[at], "content": f"{nonce} {messages[at]['content']}"}
    return (*messages[:at], first, *messages[at + 1 :])


def buckets_within(context: int, max_tokens: int, wanted: Sequence[int]) -> tuple[int, ...]:
    """Those prompt lengths, in tokens, that fit into a context together with an answer."""
    return tuple(bucket for bucket in wanted if bucket * _CONTEXT_MARGIN + max_tokens <= context)
