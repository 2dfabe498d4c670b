"""What a finished reply is looked at for while people listen: `breaches`. Pure, and cheap on clean speech.

The detectors that need only a text. A few tens of microseconds for a spoken reply of 300 characters;
`python -m gates.detect` prints what each takes.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from gates.detect.empty import find_empty
from gates.detect.finding import Finding
from gates.detect.leak import find_leaks
from gates.detect.loop import find_loops
from gates.detect.markdown import find_markdown
from gates.detect.rawcall import find_raw_calls


def breaches(
    text: str, *, calls: int = 0, names: Sequence[str] = (), tokens: Collection[str] = ()
) -> list[Finding]:
    """Findings that decide, of leak, raw_call, empty, markdown and loop.

    `calls`: how many tool calls the reply made, for it may be silent then. `names`: the tools that
    were sent. `tokens`: the model's special tokens.
    """
    findings = [
        *find_leaks(text, tokens=tokens),
        *find_raw_calls(text, names),
        *find_empty(text, calls=calls),
        *find_markdown(text),
        *find_loops(text),
    ]
    return [finding for finding in findings if finding.decides]
