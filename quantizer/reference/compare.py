"""A table of models beside a reference, on the same conversations: how far each is from it, with intervals of 95 %.

Conversations are drawn again with repetition, the same ones for every model (a paired bootstrap). The control is the reference
itself, read one conversation at a time: what differs then is the order of sums alone.
"""

import gc
import math
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
from torch import nn

from quantizer.checkpoint.from_gguf import as_folder
from quantizer.checkpoint.source import load_model, open_source
from quantizer.core import cost
from quantizer.core.decoder import layers_name
from quantizer.core.errors import DataError, SourceError
from quantizer.data.conversation import file_digest
from quantizer.data.dataset import chosen_rows
from quantizer.data.render import Renderer, open_renderer
from quantizer.ptq.parity import reference_model
from quantizer.reference import measure
from quantizer.verify.folder import open_folder
from quantizer.verify.scheme import W4A16, read_scheme

LONGEST: Final = 8_192
"""Tokens of a sample; longer ones are left out."""
RESAMPLES, SEED = 2_000, 1
COLUMNS: Final = {
    "kl": ("KL, nats", "{:.4f}"),
    "agreement": ("same top-1, %", "{:.1%}"),
    "lost": ("lost, %", "{:.1%}"),
    "gained": ("gained, %", "{:.1%}"),
    "perplexity": ("perplexity", "{:.3f}"),
}
"""The columns of the text: a heading and a number format for each. Then come those of other replies, by their kinds."""
Figures = dict[str, list[float]]
"""By name: a figure, and the bounds of its interval."""
Row = dict[str, Any]


def compare(
    paths: Sequence[Path],
    data: Path,
    *,
    device: str,
    conversations: int,
    template: str | None,
    weight_only: bool,
    replies: bool,
    track: Callable[[str, Sequence[Any]], Iterable[Any]],
) -> dict[str, Any]:
    """The table as JSON values; the first path is the reference. weight_only: inputs of NVFP4 layers are not rounded. replies: the
    models answer, too. Raises SourceError for what cannot be read or has another vocabulary, DataError."""
    model, renderer, about = _open(paths[0], device, weight_only, template)
    rows = list(chosen_rows(data, conversations, SEED))
    every = [(number, one) for number, row in enumerate(rows) for one in renderer.samples(row)]
    kept = [pair for pair in every if len(pair[1].ids) <= LONGEST]
    if not kept:
        raise DataError(f"{data}: has no conversation of at most {LONGEST} tokens")
    samples, questions = [one for _, one in kept], measure.turns(renderer, rows) if replies else []
    owners = np.repeat([number for number, _ in kept], [int(one.learned.sum()) for one in samples])
    written = torch.from_numpy(np.concatenate([one.ids[one.learned] for one in samples])).long().to(device)

    def read(path: Path, model: nn.Module, at_once: int = measure.TEXTS) -> tuple[nn.Module, torch.Tensor]:
        seen = measure.states(model, samples, renderer.pad, partial(track, "reading"), at_once)
        if not torch.isfinite(seen).all():
            raise SourceError(f"{path}: computes NaN or infinity on this data")
        return model, seen

    def answered(model: nn.Module) -> np.ndarray:
        return np.array(measure.right_replies(model, questions, renderer, partial(track, "answering")), bool)

    def figures(found: measure.Distances, said: np.ndarray) -> Row:
        made, outcomes = of_tokens(found, owners, len(rows)), {}
        for kind in sorted({one.kind for one in questions}):
            some = [i for i, one in enumerate(questions) if one.kind == kind]
            asked = np.array([questions[i].row for i in some])
            made |= intervals(_flips(kind, said[some], said_before[some]), asked, len(rows))
            outcomes[kind] = "".join(str(int(right)) for right in said[some])
        return {"figures": made, "outcomes": outcomes}

    said_before = answered(model)
    before, alone = read(paths[0], model), read(paths[0], model, at_once=1)
    model.set_submodule(layers_name(model), nn.ModuleList())  # from here on it makes logits of states alone
    found = [about | figures(measure.distances(before, before, written), said_before)]
    control = of_tokens(measure.distances(before, alone, written), owners, len(rows))
    for path in paths[1:]:
        model, other, more = _open(path, device, weight_only, str(renderer.tokenizer.chat_template))
        if other.tokenizer.get_vocab() != renderer.tokenizer.get_vocab():
            raise SourceError(f"{path}: has another vocabulary than {paths[0]}, so tokens cannot be compared")
        now = measure.distances(before, read(path, model), written)
        found.append(more | figures(now, answered(model)))
        del model
        gc.collect()  # modules are in circles, and the next model needs the room
    return {
        "data": {"file": str(data), "digest": file_digest(data), "conversations": len(rows), "tokens": len(written),
                 "left_out": len(every) - len(kept), "replies": len(questions)},
        "device": cost.device_name(torch.device(device)), "folders": found,
        "control": about | {"folder": "control: one by one", "figures": control},
    }  # fmt: skip


def of_tokens(found: measure.Distances, owners: np.ndarray, count: int) -> Figures:
    """lost, gained: of all tokens, the share of written ones that only the reference finds the likeliest, and only the other."""
    flips = _flips("", found.right > 0, found.right_before > 0)
    parts = flips | {"kl": found.kl, "agreement": found.same, "loss": found.loss}
    made = intervals(parts | {"more": found.loss - found.loss_before}, owners, count)
    for name, loss in (("perplexity", "loss"), ("perplexity_ratio", "more")):
        made[name] = [math.exp(min(value, 700.0)) for value in made.pop(loss)]
    return made


def _flips(name: str, now: np.ndarray, before: np.ndarray) -> dict[str, np.ndarray]:
    first = f"{name}_" if name else ""
    return {name or "right": now, f"{first}lost": before & ~now, f"{first}gained": now & ~before}


def intervals(parts: Mapping[str, np.ndarray], owners: np.ndarray, count: int) -> Figures:
    """Means of parts, and the bounds of 95 % over draws of conversations. owners: the conversation of each element, of `count`."""
    drawn = np.random.default_rng(SEED).multinomial(count, np.full(count, 1 / count), RESAMPLES)
    total, made = np.bincount(owners, minlength=count), {}
    weights = drawn @ total
    for name, part in parts.items():
        sums = np.bincount(owners, weights=part, minlength=count)
        spread = (drawn @ sums)[weights > 0] / weights[weights > 0]
        made[name] = [float(sums.sum() / total.sum()), *np.percentile(spread, (2.5, 97.5)).tolist()]
    return made


def _open(
    path: Path, device: str, weight_only: bool, template: str | None
) -> tuple[nn.Module, Renderer, Row]:
    """A model, its tokenizer, and its row's beginning: of a folder in BF16, F16 or F32, one in ModelOpt's NVFP4, or a GGUF file,
    which is dequantized. Raises SourceError."""
    with as_folder(path, Path(tempfile.gettempdir()) / path.name) as place:
        folder = open_folder(place, follow_links=True)
        if "quantization_config" in folder.config or folder.quant_config:
            weight_only = weight_only or read_scheme(folder)[0].algorithm == W4A16
            model = reference_model(place, device, weight_only=weight_only)
            numerics = "W4A16" if weight_only else "W4A4"
        else:
            model, numerics = load_model(open_source(place), device=device), "BF16"
        renderer = open_renderer(place, template)
    if torch.device(device).type == "cpu":
        model.float()  # a CPU without BF16 units takes three times as long with it
    size = sum(one.bytes for one in folder.tensors.values())
    size = path.stat().st_size if path.is_file() else size
    bits = round(8 * size / sum(part.numel() for part in _weights(model)), 3)
    row = {"folder": str(path), "numerics": numerics, "bytes": size, "bits_per_weight": bits}
    return model, renderer, row


def _weights(model: nn.Module) -> Iterator[torch.Tensor]:
    """Every weight, those of NVFP4 layers included, which are no parameters."""
    yield from model.parameters()
    yield from (buffer for name, buffer in model.named_buffers() if name.endswith(".weight"))


def lines(table: Mapping[str, Any]) -> Iterator[str]:
    """The table as text, for a person."""
    data, folders = table["data"], [*table["folders"], table["control"]]
    yield f"{data['conversations']} conversations, {data['tokens']:,} tokens of the assistant's, {data['replies']} replies; in brackets: 95 %"
    columns = COLUMNS | {kind: (f"{kind}, %", "{:.1%}") for kind in folders[0]["outcomes"]}
    cells = [["", "numerics", "bits", "GB", *(heading for heading, _ in columns.values())]]
    for one in folders:
        figures = [_cell(form, one["figures"].get(name)) for name, (_, form) in columns.items()]
        cells.append([one["folder"], one["numerics"], f"{one['bits_per_weight']:.2f}", f"{one['bytes'] / 1e9:.3f}", *figures])  # fmt: skip
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    for row in cells:
        yield "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()


def _cell(form: str, figure: Sequence[float] | None) -> str:
    if figure is None:
        return ""
    value, low, high = (form.format(number).rstrip("%") for number in figure)
    return value if low == high else f"{value} ({low}–{high})"
