"""Turns a file of conversations into samples for training or calibration, and counts what was left out."""

import hashlib
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from quantizer.core.errors import DataError
from quantizer.data import conversation as rows
from quantizer.data.conversation import Conversation
from quantizer.data.render import SWITCH, Renderer, Thinking, TrainingSample


@dataclass(frozen=True)
class Dataset:
    """samples: in the order of the file. conversations: number of lines read. dropped: number of samples left out,
    by reason. file_digest: of the file. pad: the padding token id."""

    samples: tuple[TrainingSample, ...]
    conversations: int
    pad: int
    file_digest: str
    dropped: Mapping[str, int] = field(default_factory=dict)

    @property
    def tokens(self) -> int:
        return sum(len(sample.ids) for sample in self.samples)

    @property
    def learned(self) -> int:
        """The number of assistant tokens."""
        return sum(int(sample.learned.sum()) for sample in self.samples)

    @property
    def digest(self) -> str:
        """The digest of the training tokens. It includes the effects of template, switches and limits, but not the
        file's name."""
        return digest(self.samples)

    def facts(self) -> dict[str, Any]:
        """The facts about the data for an artefact's record."""
        return {
            "conversations": self.conversations,
            "samples": len(self.samples),
            "tokens": self.tokens,
            "assistant_tokens": self.learned,
            "dropped": dict(self.dropped),
            "rendered": self.digest,
        }


def load_dataset(
    path: Path,
    renderer: Renderer,
    *,
    max_tokens: int,
    thinking: Thinking = "as_is",
    conversations: int | None = None,
) -> Dataset:
    """Read and render a file. Raises DataError with the line number.

    `thinking` "none" removes thoughts and puts an empty one before every answer: every second conversation is rendered with thinking
    off, where the template writes it, and every other with thinking on, where the model has to learn to close it at once.
    """
    kept: list[TrainingSample] = []
    dropped: Counter[str] = Counter()
    count = 0
    for count, row in enumerate(islice(rows.read(path), conversations), start=1):
        samples = renderer.samples(row if thinking == "as_is" else _unthinking(row, opened=count % 2 == 0))
        short = [sample for sample in samples if len(sample.ids) <= max_tokens]
        dropped[f"longer than {max_tokens} tokens"] += len(samples) - len(short)
        kept += [_checked(sample, row.where) for sample in short]
    dropped += Counter()  # leaves out what is zero
    if not kept:
        why = "; ".join(f"{n} {reason}" for reason, n in dropped.items()) or "it is empty"
        raise DataError(f"{path}: holds no sample that can be used ({why})")
    return Dataset(tuple(kept), count, renderer.pad, rows.file_digest(path), dict(dropped))


def digest(samples: Iterable[TrainingSample]) -> str:
    """`sha256:...` over token ids and loss masks of all samples in order."""
    sha = hashlib.sha256()
    for sample in samples:
        sha.update(len(sample.ids).to_bytes(4, "little") + sample.ids.astype("<i4").tobytes())
        sha.update(np.packbits(sample.learned).tobytes())
    return f"sha256:{sha.hexdigest()}"


def _unthinking(row: Conversation, opened: bool) -> Conversation:
    bare = row.without_thoughts()
    return Conversation(bare.messages, bare.tools, {**bare.switches, SWITCH: opened}, bare.where)


def _checked(sample: TrainingSample, where: str) -> TrainingSample:
    """Reject a sample without any token to learn; training on it would have no effect."""
    if not sample.learned.any() or sample.learned[0]:
        raise DataError(f"{where}: has no token of the assistant's after a prompt")
    return sample
