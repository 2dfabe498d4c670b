"""Replies of several choices as one: their messages and their token counts. Pure."""

from collections.abc import Sequence

import msgspec

from app.api.surface import Counts
from gates.reply.events import Usage


def joined_message(messages: Sequence[bytes], usage: Usage | None) -> bytes:
    """One reply of many with one choice each, numbered in their order."""
    replies = [msgspec.json.decode(message) for message in messages]
    choices = [{**reply["choices"][0], "index": index} for index, reply in enumerate(replies)]
    counts = None if usage is None else usage.counts
    return msgspec.json.encode({**replies[0], "choices": choices, "usage": counts})


def joined_usage(usages: Sequence[Usage | None], per_prompt: int) -> Usage | None:
    """The tokens of all choices; a prompt that `per_prompt` choices share counts once, as at OpenAI's.

    None: the engine did not count all of them.
    """
    counted = [Counts.of(usage) for usage in usages if usage is not None]
    if not counted or len(counted) < len(usages):
        return None
    prompts = counted[::per_prompt]
    given, cached = sum(one.given for one in prompts), sum(one.cached for one in prompts)
    made, thought = sum(one.made for one in counted), sum(one.thought for one in counted)
    return Usage(
        {
            "prompt_tokens": given,
            "completion_tokens": made,
            "total_tokens": given + made,
            "prompt_tokens_details": {"cached_tokens": cached},
            "completion_tokens_details": {"reasoning_tokens": thought},
        }
    )
