"""Finds the end of the first sentence, at which speech can begin; the gateway's metric uses the same definition. Pure."""

import re
from typing import Final

SENTENCE_END: Final = re.compile(r"[.!?।…][\"'”’)\]]{0,4}\s")


def first_sentence(text: str) -> int | None:
    """The number of characters after which the first sentence is known to be complete, or None: "3.5" does not end at the point."""
    found = SENTENCE_END.search(text)
    return found.end() if found else None
