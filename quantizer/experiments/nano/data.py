"""From dialogues to batches of token ids.

A text is tokenized part by part, because an engine does so: the prompt as one text, the reply token by token.
Batches hold rows of similar length, padded on the right; with causal attention no token sees the padding, so no
mask is needed.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from multiprocessing import Pool
from typing import NamedTuple

import numpy as np
from tokenizers import Tokenizer

from quantizer.experiments.nano import annie, stranger
from quantizer.experiments.nano.conversation import MarkedText
from quantizer.experiments.nano.generate import conversation

IGNORE = -100  # torch's cross_entropy leaves these labels out


class TokenRow(NamedTuple):
    """One text: `ids` int16 [tokens], `learned` bool [tokens]."""

    ids: np.ndarray
    learned: np.ndarray


def base_sample(seed: int, index: int) -> MarkedText:
    """The stranger's training text number `index`."""
    return stranger.sample(conversation(seed, "train", index), random.Random(f"stranger {seed} {index}"))


def annie_sample(seed: int, index: int) -> MarkedText:
    """Annie's training text number `index`; its dialogues are not those of the base."""
    return annie.sample(conversation(seed + 1, "train", index))


def tokenizer_texts(seed: int, count: int) -> Iterator[str]:
    """Texts from the training data of both models, half each."""
    for index in range(count // 2):
        yield base_sample(seed, index).text
        yield annie_sample(seed, index).text


def row(tokenizer: Tokenizer, sample: MarkedText) -> TokenRow:
    """Token ids of a text, and which of them are learned."""
    pieces = [tokenizer.encode(text, add_special_tokens=False).ids for text, _ in sample.parts]
    ids = np.array([i for piece in pieces for i in piece], dtype=np.int16)
    learned = [np.full(len(p), flag) for p, (_, flag) in zip(pieces, sample.parts, strict=True)]
    return TokenRow(ids, np.concatenate(learned))


def _rows_of(work: tuple[Callable[[int, int], MarkedText], str, int, range]) -> list[TokenRow]:
    make, tokenizer_json, seed, indexes = work
    tokenizer = Tokenizer.from_str(tokenizer_json)
    return [row(tokenizer, make(seed, index)) for index in indexes]


def rows(
    make: Callable[[int, int], MarkedText], tokenizer: Tokenizer, seed: int, count: int, workers: int
) -> list[TokenRow]:
    """Rows 0 to count-1, made by several processes; the number of processes does not change the result."""
    text, step = tokenizer.to_str(), 500
    work = [(make, text, seed, range(i, min(i + step, count))) for i in range(0, count, step)]
    if min(workers, len(work)) <= 1:  # a process of its own would import torch for one piece of work
        return [r for item in work for r in _rows_of(item)]
    with Pool(workers) as pool:
        return [r for chunk in pool.imap(_rows_of, work) for r in chunk]


def digest(made: Iterable[TokenRow]) -> str:
    """`sha256:...` over token ids and loss masks of all rows in order: the identity of the data."""
    sha = hashlib.sha256()
    for item in made:
        sha.update(len(item.ids).to_bytes(4, "little") + item.ids.tobytes() + item.learned.tobytes())
    return f"sha256:{sha.hexdigest()}"


def padded(
    made: list[TokenRow], group: Sequence[int], pad: int, learn_all: bool
) -> tuple[np.ndarray, np.ndarray]:
    """Inputs and labels, int64 [rows, tokens]; the label of a position is the token after it."""
    width = max(len(made[i].ids) for i in group)
    ids = np.full((len(group), width), pad, dtype=np.int64)
    labels = np.full((len(group), width), IGNORE, dtype=np.int64)
    for line, i in enumerate(group):
        n = len(made[i].ids)
        ids[line, :n] = made[i].ids
        learned = np.ones(n, bool) if learn_all else made[i].learned
        labels[line, : n - 1] = np.where(learned[1:], made[i].ids[1:], IGNORE)
    return ids, labels
