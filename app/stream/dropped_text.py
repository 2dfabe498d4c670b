"""Text that was meant as a call and is none: dropped, but the think tags in it are followed.

While a thought is open in it, nothing ends the block that drops it: neither its own end, nor a line end, nor a fence, nor
the tag of a call, which is a part of the thought. When the thought is over, the block goes on, or ends.
"""

import re
from collections.abc import Iterator

from app.stream.open_thoughts import OpenThoughts
from app.stream.tags import Scanner, family_of

_BLOCK = 128
"""Characters that are read at once: behind each tag the rest of them is copied."""
_STRING = re.compile(r"\"(?:[^\"\\\n]|\\[^\n])*+\"|(?<![^\W_])'(?:[^'\\\n]|\\[^\n])*+'")


class DroppedText:
    """The think tags of dropped text, in a block that ends by anything but a tag of a call. tags: finds them."""

    def __init__(self, tags: Scanner) -> None:
        self._tags = tags
        self._open = OpenThoughts()
        self._held = ""  # what may become a tag
        self._last = ""  # the character before it, to know a quoted tag

    def begin(self, raw: str) -> str:
        """What was read of a value before it was known to be no call. Returns what stands in no thought; a tag in one of its strings is none."""
        said, own = _STRING.sub('""', raw), []
        for at in range(0, len(said), _BLOCK):
            own += [part for part, _ in self.read(said[at : at + _BLOCK])]
        return "".join(own)

    @property
    def is_thinking(self) -> bool:
        """Whether a thought is open."""
        return bool(self._open)

    @property
    def held(self) -> str:
        """The end of what was read, which may become a tag."""
        return self._held

    def read(self, text: str) -> Iterator[tuple[str, str]]:
        """The parts of a text that stand in no thought, each with all that stands behind it.

        "": here a thought is over, so that a line begins. Where none was open, its tag stands behind.
        """
        rest, self._held = self._held + text, ""
        while rest:
            tag, at = self._tags.scan(rest, self._last)
            was_open = bool(self._open)
            if at:
                self._last = rest[at - 1]
                if not was_open:
                    yield rest[:at], rest[at:]
            if tag is None:
                self._held = rest[at:]
                return
            is_over = self._open.follow(tag.lastgroup, family_of(tag))
            is_orphan = not was_open and (is_over or tag.lastgroup == "close")
            if is_orphan or (is_over and not self._open):
                yield "", rest[at if is_orphan else tag.end() :]
            rest, self._last = rest[tag.end() :], ">"


class DroppingBlock:
    """What the blocks have in common that are over with their call: nothing is looked at behind it, and all that they drop is a `DroppedText`."""

    literal = ""
    is_json = False
    _dropped: DroppedText

    @property
    def half_tag(self) -> str:
        """The end of what it drops, which may become a think tag."""
        return self._dropped.held

    @property
    def is_over(self) -> bool:
        """Whether a whole call was read."""
        return False

    @property
    def is_thinking(self) -> bool:
        """Whether a thought is open in what it drops."""
        return self._dropped.is_thinking
