"""A call that a model writes as text, and in the middle of which the engine does something else.

An engine whose parser took a part of the call sends it as its own, or sends reasoning, and leaves the rest of the call in
the text. So the call is read on as if nothing had come between, but it is never made. Where the text behind the
interruption is no rest of it, that text is speech: the call's end must come soon.
"""

from typing import Protocol

from app.stream.dropped_text import DroppedText
from app.stream.events import CallStart, Dropped, Segment
from app.stream.tags import Scanner

LONGEST_REST = 256
"""Characters behind the interruption in which the call must end; where it does not, they are text."""
INTERRUPTED = "interrupted"
"""The reason why a block is closed where the engine does something else."""


class Block(Protocol):
    """A part of a reply that may be a call: fed until it is `done`, it gives back what is not its own.

    literal, plain, is_json: what was given back is text, as each block says. index: of the last call.
    """

    done: bool
    index: int

    @property
    def literal(self) -> str: ...
    @property
    def plain(self) -> int: ...
    @property
    def is_json(self) -> bool: ...
    @property
    def raw(self) -> str:
        """What was taken, and may be a call: "" once it is known to be none."""

    @property
    def is_over(self) -> bool:
        """Whether a whole call was read, so that only what stands behind it is looked at."""

    @property
    def is_thinking(self) -> bool:
        """Whether a thought is open in what it drops."""

    def feed(self, text: str, out: list[Segment]) -> str:
        """Take text; what is given back when the block is done stands behind it."""

    def close(self, reason: str, out: list[Segment]) -> str:
        """The reply ended here. Text to look at again."""


class InterruptedCall:
    """`feed` and `close` as a block's. block: what was interrupted. thoughts: finds think tags; those in the rest are followed."""

    def __init__(self, block: Block, thoughts: Scanner) -> None:
        self.block = block
        self._thoughts = thoughts
        self._is_broken = not block.raw
        self._found: list[Segment] = []  # what the block makes of itself
        self._rest = DroppedText(thoughts)
        self._rest.begin(block.raw)
        self._half = (
            self._rest.take_held()
        )  # a tag that the interruption parts; the block has taken this half of it
        self._joined = self._half  # with what came of it since
        self._words: list[str] = []  # behind the interruption, in no thought
        self._size = 0

    @property
    def done(self) -> bool:
        """Whether what follows is no part of it."""
        return self.block.done

    @property
    def is_thinking(self) -> bool:
        """Whether a thought is open in it."""
        return self._rest.is_thinking or self.block.is_thinking

    def feed(self, text: str, out: list[Segment]) -> str:
        """Take text; what is given back when it is done stands behind it, or is text."""
        if self._joined:
            text, self._joined = self._joined + text, ""
            if self._thoughts.match(text) is None:
                if self._thoughts.may_become(text):
                    self._joined = text
                    return ""
                text = text[len(self._half) :]
        for own, behind in self._rest.read(text):
            if not own:
                tag = self._thoughts.match(behind)
                if (
                    tag is not None and tag.lastgroup == "close"
                ):  # nothing opened it: what stands before it is thought
                    self._words.clear()
                continue
            rest = own
            while rest and not self.block.done:
                rest = self.block.feed(rest, self._found)
            if self.block.done:
                return self._end(rest + behind, out)
            self._words.append(own)
            self._size += len(own)
            if self._size > LONGEST_REST:
                self.block.done = True
                self._drop(out)
                return "".join(self._words) + behind
        return ""

    def close(self, reason: str, out: list[Segment]) -> str:
        """The reply ended here. Text to look at again."""
        is_cut = reason in ("length", "") and bool(self.block.raw)
        is_call = is_cut or self._rest.is_thinking or any(type(found) is CallStart for found in self._found)
        rest = self.block.close(reason, self._found)
        self.block.done = True
        if self.block.literal or self.block.plain:
            return rest
        self._drop(out)
        return rest or ("" if is_call else "".join(self._words) + self._rest.take_held())

    def _end(self, rest: str, out: list[Segment]) -> str:
        if not (self.block.literal or self.block.plain):
            self._drop(out)
        return rest

    def _drop(self, out: list[Segment]) -> None:
        if not self._is_broken:
            out.append(Dropped())
