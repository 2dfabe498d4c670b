"""Detects a broken chat template: special tokens, message headers and turns of other speakers in the text. Pure."""

from collections.abc import Collection
from typing import Final

from gates.detect.detection import Detection, detection
from gates.detect.tags import markers

_KINDS: Final = frozenset({"header", "turn", "role", "token", "result"})


def find_broken_template(text: str, tokens: Collection[str] = ()) -> list[Detection]:
    """Every marker of a template that belongs to no thought and no call. `tokens`: the model's special tokens."""
    found = [
        (start, end, marker.kind) for marker, start, end in markers(text, tokens) if marker.kind in _KINDS
    ]
    return [detection("template", kind, text, start, end) for start, end, kind in sorted(found)]
