"""Reasoning traces mixed into training data, so that a model that is trained on short answers does not forget to think.

The share is of the assistant's tokens. Traces are drawn in an order that follows from a seed, and spread evenly among the rest.
"""

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from quantizer.core.errors import DataError, RecipeError
from quantizer.data import conversation as rows
from quantizer.data.dataset import Dataset, short_enough
from quantizer.data.render import Renderer, TrainingSample

Trace = Sequence[TrainingSample]
"""The samples of one conversation."""


@dataclass(frozen=True, slots=True)
class Mix:
    """A file of traces, and the share of the learned tokens that they are to make up."""

    file: Path
    share: float


def read_mix(text: str) -> Mix:
    """`FILE:SHARE`, such as `traces.jsonl:0.2`. Raises RecipeError."""
    file, _, number = text.rpartition(":")
    try:
        share = float(number)
    except ValueError:
        share = 0.0
    if not file or not 0 < share < 1:
        raise RecipeError(f"--mix {text}: write FILE:SHARE with a share between 0 and 1, as traces.jsonl:0.2")
    return Mix(Path(file), share)


def mixed(data: Dataset, mix: Mix, renderer: Renderer, *, max_tokens: int, seed: int) -> Dataset:
    """The data with traces among it. Raises DataError: a row has no thought, or there are too few traces for the share.

    Of a trace only the turns with a thought are learned: one without it, behind a prompt that asks for it, would teach the opposite.
    """
    dropped: Counter[str] = Counter()
    traces = []
    for row in rows.read(mix.file):
        if not row.thinks:
            raise DataError(f"{row.where}: has no thought; put it into --data, and only traces into --mix")
        samples = short_enough(renderer.samples(row, learns=_has_thought), max_tokens, dropped)
        if learned := [sample for sample in samples if sample.learned.any()]:
            traces.append(learned)
    wanted = round(mix.share / (1 - mix.share) * data.learned)
    available = sum(map(_learned, traces))
    if available < wanted:
        most = available / (available + data.learned)
        left_out = "".join(f"; {count} samples {reason}" for reason, count in dropped.items())
        raise DataError(
            f"{mix.file}: {available:,} tokens of traces are too few: a share of {mix.share:g} needs {wanted:,}{left_out}. Give "
            f"more traces, or a share of at most {most:.2f}"
        )
    chosen = _drawn(traces, wanted, seed)
    facts: dict[str, Any] = {
        "digest": rows.file_digest(mix.file),
        "share": mix.share,
        "conversations": len(chosen),
        "of": len(traces),
        "samples": sum(map(len, chosen)),
        "assistant_tokens": sum(map(_learned, chosen)),
        "dropped": dict(dropped),
    }
    return replace(data, samples=_spread(data.samples, [s for trace in chosen for s in trace]), mix=facts)


def _drawn(traces: Sequence[Trace], wanted: int, seed: int) -> list[Trace]:
    """Traces in a random order, as long as each brings their tokens nearer to what is wanted; at least one."""
    order = list(traces)
    random.Random(f"mix {seed}").shuffle(order)
    chosen: list[Trace] = []
    taken = 0
    for trace in order:
        if not chosen or taken + _learned(trace) / 2 <= wanted:
            chosen.append(trace)
            taken += _learned(trace)
    return chosen


def _has_thought(message: rows.Message) -> bool:
    return bool(rows.thought_of(message))


def _learned(trace: Trace) -> int:
    return sum(int(sample.learned.sum()) for sample in trace)


def _spread(
    samples: Sequence[TrainingSample], others: Sequence[TrainingSample]
) -> tuple[TrainingSample, ...]:
    """Both in their own order, the others at even distances."""
    placed = [
        ((i + 0.5) / len(group), sample) for group in (samples, others) for i, sample in enumerate(group)
    ]
    return tuple(sample for _, sample in sorted(placed, key=lambda pair: pair[0]))
