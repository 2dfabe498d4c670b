"""Where the first sentence ends that a voice can begin to speak. Pure.

A speech synthesiser waits for a sentence mark, closing quotes or brackets, and white space behind
them: "3.5" does not end at the point, and an ending is known only when the next character is here.
It is the definition of the gateway's `manners_time_to_first_sentence_seconds`, so that a gate's
numbers and production's are of one thing.
"""

from __future__ import annotations

import re
from typing import Final

_END: Final = re.compile(r"[.!?।…][\"'”’)\]]{0,4}\s")


def first_sentence(text: str) -> int | None:
    """Characters of `text` that must be here before its first sentence is known to be over.

    None: no sentence is over before the text is.
    """
    found = _END.search(text)
    return found.end() if found else None
