"""The policy under which this gateway's core reads a row of the duel."""

from typing import Any

from app.stream.holdback import ThinkPolicy
from app.stream.pipeline import StreamPolicy
from app.stream.schema import Tools

WHOLE = 1 << 30
"""A reply that is not streamed is held back as a whole, as nobody waits for its beginning."""


def policy(row: dict[str, Any], *, streamed: bool) -> StreamPolicy:
    """As the gateway makes it for a model whose format is known."""
    think = ThinkPolicy(guard=0 if streamed else WHOLE)
    tools = Tools(row["tools"]) if row["tools"] else None
    return StreamPolicy(think, tools, "t", format=row["format"])
