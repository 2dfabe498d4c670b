"""The thoughts that are open, one in another, and which closing tag ends which.

A thought ends by a closing tag of its own family. One of another family inside it ends nothing, or the mouth would open
in the middle of the outer thought. Models mix up the names of the common families (`<thinking>…</think>`): where only
one thought is open, a tag of the same kind ends it, too.
"""

from app.stream.tags import kind_of_family

DEEPEST = 64
"""Thoughts of different families, one in another. One more lasts to the end of the reply: nothing is said by mistake."""
_ENDLESS = ""
"""Stands for a family that no tag closes."""
ANY = "*"
"""Stands for one that every tag closes: what opened the thought was no tag."""


class OpenThoughts:
    """Empty where nothing is open. Every call takes constant time, and the memory is bounded."""

    def __init__(self) -> None:
        self.has_words = False  # said by who reads them: they are more than white space
        # Families, and how often each was opened in itself; the outermost first.
        self._runs: list[tuple[str, int]] = []

    def __bool__(self) -> bool:
        return bool(self._runs)

    @property
    def innermost(self) -> str:
        """The family of the thought that is open and in which none is; "" for none."""
        return self._runs[-1][0] if self._runs else ""

    def open(self, family: str) -> None:
        """An opening tag of this family."""
        innermost, count = self._runs[-1] if self._runs else (_ENDLESS, 0)
        if self._runs and family == innermost:
            self._runs[-1] = (family, count + 1)
        elif len(self._runs) < DEEPEST:
            self._runs.append((family, 1))
        elif innermost != _ENDLESS:
            self._runs.append((_ENDLESS, 1))

    def close(self, family: str) -> bool:
        """A closing tag of this family. Returns whether it ended the innermost thought."""
        if not self._runs:
            return False
        innermost, count = self._runs[-1]
        is_alone = len(self._runs) == count == 1
        is_own = family == innermost or innermost == ANY
        if not is_own and not (is_alone and kind_of_family(family) == kind_of_family(innermost)):
            return False
        if count > 1:
            self._runs[-1] = (innermost, count - 1)
        else:
            self._runs.pop()
        return True

    def follow(self, role: str | None, family: str) -> bool:
        """A think tag of this role (`app.stream.tags.Role`), in a thought or beside one. Returns whether it ended the innermost thought."""
        begins = role in ("open", "answer") or (role == "start" and not self)
        if begins or (role == "element" and family == self.innermost):
            self.open(family)
        elif role == "final":
            return self.close_all(family)
        elif role in ("close", "end", "answer_end") or (role == "element_end" and family == self.innermost):
            return self.close(family)
        return False

    def close_all(self, family: str) -> bool:
        """What follows this tag is the answer, whatever of its kind was open. Returns whether that ended them all."""
        kind = kind_of_family(family)
        if any(kind_of_family(opened) != kind for opened, _ in self._runs):
            return False
        self.clear()
        return True

    def clear(self) -> None:
        """All are over."""
        self._runs.clear()
