"""What a finished reply is looked at for while people listen: `breaches`. Pure, and cheap on clean speech.

The detectors that need only a text. About 0.15 ms for a spoken reply of 300 characters and 0.5 ms for
1,000, on a server's core; at most a few times ten milliseconds, whatever a model makes of it, because
no detector reads without end.
`python -m gates.detect` prints what each takes.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Final

from gates.detect.empty import find_empty
from gates.detect.finding import Finding
from gates.detect.leak import find_leaks
from gates.detect.loop import find_loops
from gates.detect.markdown import find_markdown
from gates.detect.rawcall import find_raw_calls

READ: Final = 16_384
"""Characters, from the beginning, in which leaks and raw calls are looked for."""
READ_AS_MARKDOWN: Final = 1_000
"""From the beginning, a minute of speech. A parser of Markdown takes 0.7 s for 16,384 times "["."""
READ_FOR_LOOPS: Final = 4_000
"""From the end: a model that goes in circles does so until it is cut off."""


def breaches(
    text: str, *, calls: int = 0, names: Sequence[str] = (), tokens: Collection[str] = ()
) -> list[Finding]:
    """Findings that decide, of leak, raw_call, empty, markdown and loop.

    `calls`: how many tool calls the reply made, for it may be silent then. `names`: the tools that
    were sent. `tokens`: the model's special tokens.
    """
    begins = text[:READ]
    findings = [
        *find_leaks(begins, tokens=tokens),
        *find_raw_calls(begins, names),
        *find_empty(begins, calls=calls),
        *find_markdown(text[:READ_AS_MARKDOWN]),
        *find_loops(text[-READ_FOR_LOOPS:]),
    ]
    return [finding for finding in findings if finding.decides]
