"""What the scripted engine says and the load client expects: one text, cut into deltas. Pure.

How a stream runs is asked for in the prompt itself, because every gateway passes messages on
unchanged while most drop or refuse fields that they do not know.
"""

import re

MODEL = "annie"
KEY = "sk-bench-0123456789"

TOKENS = (
    "Good", " morning", "!", " I", " looked", " at", " your", " day", ",", " and", " there", " is",
    " one", " thing", " to", " know", ".", " The", " train", " to", " Mysuru", " leaves", " at",
    " ten", " past", " nine", ",", " so", " you", "'d", " better", " be", " at", " the", " station",
    " by", " nine", ".", " Amma", " said", " \"", "take", " the", " umbrella", ",\"", " and", " she",
    " is", " right", ":", " rain", " comes", " after", " lunch", ".", " At", " the", " café", " ask",
    " for", " the", " corner", " table", ".",
)  # fmt: skip
"""As a spoken reply is cut by a tokenizer: mostly bare words, some quotes, one letter of two bytes."""

OVERHEAD_CHUNKS = 3
"""Chunks of a stream besides its content: role, finish, usage."""

_ORDER = re.compile(rb"\[(\d+) tokens, (paced|at once)\]")


def order(tokens: int, paced: bool) -> str:
    """The prompt that asks the engine for a stream."""
    return f"Tell me about my day. [{tokens} tokens, {'paced' if paced else 'at once'}]"


def read_order(body: bytes) -> tuple[int, bool]:
    """Number of tokens and whether they are paced; a stranger's prompt (a probe) gets two."""
    found = _ORDER.search(body)
    return (int(found[1]), found[2] == b"paced") if found else (2, False)


def text(tokens: int) -> str:
    """The whole reply of a stream."""
    return "".join(TOKENS[i % len(TOKENS)] for i in range(tokens))
