"""Turns a file of conversations into samples for training or calibration, and counts what was left out."""

import hashlib
import random
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from quantizer.core.errors import DataError
from quantizer.data import conversation as rows
from quantizer.data.conversation import Conversation
from quantizer.data.render import SWITCH, Renderer, Thinking, TrainingSample


@dataclass(frozen=True)
class Dataset:
    """samples: in the order of the file, or as drawn. conversations: number of lines read. dropped: number of samples left out,
    by reason. file_digest: of the file. pad: the padding token id. kinds: of each sample's conversation. seed: by which they were drawn."""

    samples: tuple[TrainingSample, ...]
    conversations: int
    pad: int
    file_digest: str
    dropped: Mapping[str, int] = field(default_factory=dict)
    kinds: tuple[str, ...] = ()
    seed: int | None = None

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
        } | ({} if self.seed is None else {"seed": self.seed, "kinds": dict(Counter(self.kinds))})

    def drawn(self, count: int, seed: int) -> "Dataset":
        """So many of the samples, drawn by kind."""
        chosen = draw(self.kinds, count, seed)
        kinds = tuple(self.kinds[i] for i in chosen)
        return replace(self, samples=tuple(self.samples[i] for i in chosen), kinds=kinds, seed=seed)


def draw(kinds: Sequence[str], count: int, seed: int) -> list[int]:
    """Indices, so many and in random order: the share of every kind is that in the whole, and each is among the first."""
    rng, places = random.Random(f"draw {seed}"), defaultdict[str, list[int]](list)
    for index, kind in enumerate(kinds):
        places[kind].append(index)
    ranked = [
        (rank / len(held), rng.random(), index)
        for held in places.values()
        for rank, index in enumerate(rng.sample(held, len(held)))
    ]
    return [index for *_, index in sorted(ranked)[:count]]


def load_dataset(
    path: Path,
    renderer: Renderer,
    *,
    max_tokens: int,
    thinking: Thinking = "as_is",
    conversations: int | None = None,
    seed: int = 0,
) -> Dataset:
    """Read and render a file; with `conversations`, so many, drawn by kind. Raises DataError with the line number.

    `thinking` "none" removes thoughts and puts an empty one before every answer: every second conversation is rendered with thinking
    off, where the template writes it, and every other with thinking on, where the model has to learn to close it at once.
    """
    kept: list[TrainingSample] = []
    kinds: list[str] = []
    dropped: Counter[str] = Counter()
    count = 0
    for count, row in enumerate(chosen_rows(path, conversations, seed), start=1):
        samples = renderer.samples(row if thinking == "as_is" else _unthinking(row, opened=count % 2 == 0))
        short = [sample for sample in samples if len(sample.ids) <= max_tokens]
        dropped[f"longer than {max_tokens} tokens"] += len(samples) - len(short)
        kept += [_checked(sample, row.where) for sample in short]
        kinds += [row.kind] * len(short)
    dropped += Counter()  # leaves out what is zero
    if not kept:
        why = "; ".join(f"{n} {reason}" for reason, n in dropped.items()) or "it is empty"
        raise DataError(f"{path}: holds no sample that can be used ({why})")
    drawn = None if conversations is None else seed
    return Dataset(
        tuple(kept), count, renderer.pad, rows.file_digest(path), dict(dropped), tuple(kinds), drawn
    )


def chosen_rows(path: Path, conversations: int | None, seed: int) -> Iterable[Conversation]:
    """Those of a file that are read: all in order, or so many as drawn."""
    if conversations is None:
        return rows.read(path)
    chosen = draw([row.kind for row in rows.read(path)], conversations, seed)
    ranks = {index: rank for rank, index in enumerate(chosen)}
    found = {ranks[index]: row for index, row in enumerate(rows.read(path)) if index in ranks}
    return [found[rank] for rank in sorted(found)]


def digest(samples: Iterable[TrainingSample]) -> str:
    """`sha256:...` over token ids and loss masks of all samples in order."""
    sha = hashlib.sha256()
    for sample in samples:
        sha.update(len(sample.ids).to_bytes(4, "little") + sample.ids.astype("<i4").tobytes())
        sha.update(np.packbits(sample.learned).tobytes())
    return f"sha256:{sha.hexdigest()}"


def _unthinking(row: Conversation, opened: bool) -> Conversation:
    bare = row.without_thoughts()
    return replace(bare, switches={**bare.switches, SWITCH: opened})


def _checked(sample: TrainingSample, where: str) -> TrainingSample:
    """Reject a sample without any token to learn; training on it would have no effect."""
    if not sample.learned.any() or sample.learned[0]:
        raise DataError(f"{where}: has no token of the assistant's after a prompt")
    return sample
