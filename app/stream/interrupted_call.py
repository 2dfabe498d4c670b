"""A call that a model writes as text, and in the middle of which the engine does something else.

An engine whose parser took a part of the call sends it as its own, or sends reasoning, and leaves the rest of the call in
the text. So the call is read on as if nothing had come between, but it is never made. Where the text behind the
interruption is no rest of it, that text is speech: the call's end must come soon.
"""

import re
from typing import Protocol

from app.stream.dropped_text import DroppedText
from app.stream.events import Dropped, Segment
from app.stream.tags import CALL_OPENERS, Scanner

LONGEST_REST = 256
"""Characters behind the interruption in which the call must end; where it does not, they are text."""
_MARK = re.compile(r"[:,}\]]")
_BEHIND_STRING = re.compile(r"\"\s{0,8}[:,}\]]\Z")
"""The end of a string in JSON. Where it stands in what follows, and the call goes on, that was the call's rest."""
_LONGEST_TAIL = 16
_NO_PROSE = tuple("{}[]:,")
"""What begins no words."""
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
        """What was taken, as long as it may be a call."""

    @property
    def is_broken(self) -> bool:
        """Whether it is known to be no call, and is dropped to its end."""

    @property
    def half_tag(self) -> str:
        """The end of what it drops, which may become a think tag."""

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
    """`feed` and `close` as a block's. block: what was interrupted. thoughts: finds think tags; tags: those of calls, too."""

    def __init__(self, block: Block, thoughts: Scanner, tags: Scanner) -> None:
        self.block = block
        self._thoughts = thoughts
        self._tags = tags
        self._was_broken = block.is_broken
        self._rest = DroppedText(thoughts)  # of it, with the thoughts in it
        self._rest.begin(block.half_tag if block.is_broken else block.raw)
        self._before = self._rest.held  # half a tag, which came before the interruption
        self._words: list[str] = []  # behind the interruption, in no thought
        self._size = 0
        raw = block.raw
        self._tail = ""  # the last of what followed
        half = raw[max(raw.rfind("<"), 0) :]
        is_half = not block.is_broken and tags.match(half) is None and tags.may_become(half)
        self._half = half if is_half else ""  # a tag that the interruption parts
        self._fits = False  # what followed was a part of the call

    def interrupt(self) -> None:
        """The engine does something else once more."""
        self._before = self._rest.held

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
        at = 0
        while at < len(text):
            part = self._part(text, at)
            rest, at = part, at + len(part)
            while rest and not self.block.done:
                rest = self.block.feed(rest, [])
            if self.block.done:
                return self._end(rest + text[at:], out)
            self._keep(part)
            if self._size > LONGEST_REST and not self._fits:
                self.block.done = True
                self._drop(out)
                return self._take_words() + text[at:]
        return ""

    def _part(self, text: str, at: int) -> str:
        """What is read at once, so that no outcome depends on the cut: up to a mark, and no more than may be the rest."""
        if self._fits:
            return text[at:]
        mark = _MARK.search(text, at)
        end = len(text) if mark is None else mark.end()
        return text[at : min(end, at + LONGEST_REST + 1 - self._size)]

    def _keep(self, part: str) -> None:
        """This may be text, but for the thoughts in it."""
        for own, behind in self._rest.read(part):
            if own and not self._fits:
                self._words.append(own.removeprefix(self._before))
                self._size += len(own)
            elif not own and (tag := self._thoughts.match(behind)) is not None and tag.lastgroup == "close":
                self._words.clear()  # an orphan: before it stands thought
            self._before = ""
        if not self._fits and self._goes_on(part):
            self._fits = True
            self._words.clear()

    def _goes_on(self, part: str) -> bool:
        """Whether this, with what came before it, is something that only a call has."""
        if self._half:
            self._half += part
            tag = self._tags.match(self._half)
            if tag is not None:
                return tag.lastgroup in CALL_OPENERS
            self._half = self._half if self._tags.may_become(self._half) else ""
        is_first = not self._tail.strip()
        self._tail = (self._tail + part)[-_LONGEST_TAIL:]
        if is_first and part.lstrip().startswith(_NO_PROSE):
            return True
        return not self.block.is_broken and _BEHIND_STRING.search(self._tail) is not None

    def close(self, reason: str, out: list[Segment]) -> str:
        """The reply ended here. Text to look at again."""
        is_cut = reason in ("length", "") and not self.block.is_broken
        is_call = is_cut or self.block.is_over or self._fits
        rest = self.block.close(reason, [])
        self.block.done = True
        if self.block.literal or self.block.plain:
            return rest
        self._drop(out)
        return rest or ("" if is_call else self._take_words())

    def _take_words(self) -> str:
        return "".join(self._words) + self._rest.held.removeprefix(self._before)

    def _end(self, rest: str, out: list[Segment]) -> str:
        if not (self.block.literal or self.block.plain):
            self._drop(out)
        return rest

    def _drop(self, out: list[Segment]) -> None:
        if not self._was_broken:
            out.append(Dropped())
