"""Finding tags in text that arrives in pieces, holding back as little as possible."""

import re
from collections.abc import Sequence


class TagSet:
    """A fixed set of tags, every one of which starts with `<` and holds no other `<`.

    That shape is what makes the hold-back short and cheap: a tag that is cut off at the end of a
    piece can only start at the piece's last `<`.
    """

    def __init__(self, tags: Sequence[str]) -> None:
        if not all(tag[0] == "<" and "<" not in tag[1:] for tag in tags):
            raise ValueError(f"each tag must hold exactly one '<', at its start: {tags}")
        longest_first = sorted(tags, key=len, reverse=True)
        self._pattern = re.compile("|".join(re.escape(tag) for tag in longest_first))
        self._beginnings = frozenset(tag[:n] for tag in tags for n in range(1, len(tag)))

    def scan(self, text: str, before: str = "") -> tuple[re.Match[str] | None, int]:
        """The first tag in `text`, and where the text that is certainly no tag ends.

        A tag between two backticks is a literal, as in prose about tags, and is passed over.
        `before` is the character that preceded `text` ("" at the start of a reply). The second
        value is the tag's start; without a tag it is where the shortest suffix begins that may
        still become one, or len(text).
        """
        start = 0
        while match := self._pattern.search(text, start):
            at, end = match.span()
            if (text[at - 1] if at else before) == "`":
                if end == len(text):
                    return None, at  # the next character decides
                if text[end] == "`":
                    start = end
                    continue
            return match, at
        last = text.rfind("<", start)
        if last >= 0 and text[last:] in self._beginnings:
            return None, last
        return None, len(text)

    def is_tag(self, text: str) -> bool:
        """Whether `text` is one whole tag and nothing else."""
        return self._pattern.fullmatch(text) is not None
