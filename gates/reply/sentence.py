"""Finds the end of the first sentence, at which speech synthesis can begin. Pure.

A sentence ends with a sentence mark, optional closing quotes or brackets, and white space: "3.5" does
not end at the point, and an end is known only when the next character has arrived. The gateway's
`manners_time_to_first_sentence_seconds` uses the same definition, so that the gate and production
measure the same.
"""

from __future__ import annotations

import re
from typing import Final

_END: Final = re.compile(r"[.!?।…][\"'”’)\]]{0,4}\s")


def first_sentence(text: str) -> int | None:
    """The number of characters after which the first sentence of `text` is known to be complete.

    None if that is not known before the end of the text.
    """
    found = _END.search(text)
    return found.end() if found else None
