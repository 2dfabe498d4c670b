"""Training conversations of annie-nano: 2,048 of those that its generator made (seed 7; commit f6ffe163)."""

import lzma
from pathlib import Path
from typing import Final

FILE: Final = Path(__file__).with_name("conversations.jsonl.xz")


def lines(count: int, skip: int = 0) -> list[str]:
    """Conversations as JSON texts, in the form that `manners data validate` checks. Raises ValueError: there are fewer."""
    found = lzma.decompress(FILE.read_bytes()).decode("utf-8").splitlines()[skip : skip + count]
    if len(found) < count:
        raise ValueError(f"{FILE.name} holds {len(found)} conversations after the first {skip}, not {count}")
    return found


def write(path: Path, count: int, skip: int = 0) -> Path:
    """Write a JSONL file of `count` conversations, leaving out the first `skip`."""
    path.write_text("\n".join(lines(count, skip)) + "\n", encoding="utf-8")
    return path
