"""Checks a finished reply in production: `find_violations`. Pure; 0.15 ms for 300 characters of speech, some tens of ms at most."""

from collections.abc import Collection
from typing import Final

from gates.detect.detection import Detection
from gates.detect.leak import find_leaks
from gates.detect.loop import find_loops
from gates.detect.markdown import find_markdown
from gates.detect.rawcall import find_raw_calls
from gates.detect.tags import find_broken_template, find_empty

MAX_CHARS: Final = 16_384
"""How many characters from the beginning are searched for leaks, raw calls and markers."""
MAX_MARKDOWN_CHARS: Final = 1_000
"""The same for Markdown: about a minute of speech. The parser takes 0.7 s for 16,384 times "["."""
MAX_LOOP_CHARS: Final = 4_000
"""How many characters from the end are searched for loops, which last until the reply is cut off."""


def find_violations(
    text: str, *, calls: int = 0, names: Collection[str] = (), tokens: Collection[str] = ()
) -> list[Detection]:
    """Detections of leak, template, raw_call, empty, markdown and loop. `names`: the tools that were sent."""
    begins = text[:MAX_CHARS]
    return [
        *find_leaks(begins),
        *find_broken_template(begins, tokens),
        *find_raw_calls(begins, names),
        *find_empty(begins, calls=calls),
        *find_markdown(text[:MAX_MARKDOWN_CHARS]),
        *find_loops(text[-MAX_LOOP_CHARS:]),
    ]
