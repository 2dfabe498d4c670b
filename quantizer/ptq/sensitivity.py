"""Sensitivity scores: how much the model's output changes when one group of layers alone is quantized.

The score is the divergence KL(BF16 || NVFP4 in this group) of the next-token distributions, summed over the tokens
that the assistant wrote in the scored conversations, because they show how the model behaves. The reference takes
one forward pass; each group then takes one more for each batch, which starts at the group's own decoder layer,
since nothing before it has changed.

Scores are written to disk as they are computed. A killed run continues from there; a score log of another run is
rejected.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from quantizer.core.batch import Batch, assistant_logits
from quantizer.core.errors import CheckpointError, DataError
from quantizer.layers.attach import detach
from quantizer.layers.linear import drop_weights, hold_weights, nvfp4_layers, unquantized
from quantizer.ptq.knapsack import LayerGroup, PrecisionMix

Groups = Sequence[tuple[str, ...]]


@torch.no_grad()
def score(
    model: nn.Module,
    groups: Groups,
    batches: Sequence[Batch],
    ledger: ScoreLog,
    track: Callable[[Sequence[tuple[str, ...]]], Iterable[tuple[str, ...]]] = iter,
) -> list[LayerGroup]:
    """The divergence that each group causes alone, in the given order.

    model: calibrated, with block scales. Raises DataError if the batches contain no token of the assistant.
    """
    layers, missing = nvfp4_layers(model), [group for group in groups if group not in ledger.known]
    if missing and not any(bool(batch.loss_mask.any()) for batch in batches):
        raise DataError("auto: no token of the assistant's in the scored conversations")
    hold_weights(model)
    with unquantized(model):
        passes = [_Pass(model, batch) for batch in batches] if missing else []
        for group in track(missing):
            for name in group:
                layers[name].active = True
            ledger.add(group, sum(one.divergence(group) for one in passes))
            for name in group:
                layers[name].active = False
    drop_weights(model)
    return [LayerGroup(g, sum(layers[name].weight.numel() for name in g), ledger.known[g]) for g in groups]


def keep_in_bf16(model: nn.Module, groups: Groups, mix: PrecisionMix) -> tuple[str, ...]:
    """Replace the groups that a mix keeps in BF16 by plain layers. Returns their names."""
    names = tuple(name for index in mix.kept for name in groups[index])
    detach(model, names)
    return names


class ScoreLog:
    """Scores on disk, one line each, together with the run that they belong to. Without a path they are kept in
    memory."""

    def __init__(self, path: Path | None, run: dict[str, Any]) -> None:
        """run: what the scores depend on, as JSON values. Raises CheckpointError if the file is of another run."""
        self.path, self.known = path, dict[tuple[str, ...], float]()
        head = json.dumps({"run": run}, sort_keys=True)
        if path is None:
            return
        text = path.read_text(encoding="utf-8") if path.exists() else ""
        whole = text[: text.rfind("\n") + 1]  # the last line of a killed run may be incomplete
        if not whole:
            path.write_text(head + "\n", encoding="utf-8")
            return
        first, *lines = whole.splitlines()
        if first != head:
            raise CheckpointError(f"{path}: scores of another run; remove it to start over")
        for line in lines:
            self._read(line)
        if whole != text:
            path.write_text(whole, encoding="utf-8")

    def add(self, group: tuple[str, ...], divergence: float) -> None:
        self.known[group] = divergence
        if self.path:
            with self.path.open("a", encoding="utf-8") as file:
                file.write(json.dumps({"layers": group, "divergence": divergence}) + "\n")

    def _read(self, line: str) -> None:
        try:
            entry = json.loads(line)
            self.known[tuple(entry["layers"])] = float(entry["divergence"])
        except (ValueError, KeyError, TypeError):
            raise CheckpointError(f"{self.path}: is damaged; remove it to start over") from None


class _Pass:
    """A batch after a pass through the unquantized model: the input of each decoder layer, and the output."""

    def __init__(self, model: nn.Module, batch: Batch) -> None:
        self.model, self.batch = model, batch.to(next(model.parameters()).device)
        self.layers = list(model.get_submodule("model.layers").children())
        self.read: dict[int, Tensor] = {}
        hooks = [layer.register_forward_pre_hook(self._remember(i)) for i, layer in enumerate(self.layers)]
        try:
            self.reference = F.log_softmax(assistant_logits(model, self.batch).float(), dim=-1)
        finally:
            for hook in hooks:
                hook.remove()

    def divergence(self, group: tuple[str, ...]) -> float:
        """The summed KL divergence of the model as it is now from the reference. group: the layers that have
        changed."""
        first = min(int(name.split("layers.", 1)[1].split(".", 1)[0]) for name in group)
        with _from_layer(self.model, first, self.read[first]):
            logits = assistant_logits(self.model, self.batch).float()
        return float(
            F.kl_div(F.log_softmax(logits, dim=-1), self.reference, reduction="sum", log_target=True)
        )

    def _remember(self, index: int) -> Callable[[nn.Module, tuple[Any, ...]], None]:
        def look(layer: nn.Module, args: tuple[Any, ...]) -> None:
            self.read[index] = args[0]

        return look


class _Skipped(nn.Module):
    """Replaces a decoder layer whose output is already known."""

    def forward(self, hidden: Tensor, *args: Any, **more: Any) -> Tensor:
        return hidden


@contextmanager
def _from_layer(model: nn.Module, first: int, hidden: Tensor) -> Iterator[None]:
    """Within a `with` block, the model starts at a decoder layer with the input recorded for it."""
    layers = model.get_submodule("model.layers")
    assert isinstance(layers, nn.ModuleList)
    whole = list(layers)
    hook = whole[first].register_forward_pre_hook(lambda layer, args: (hidden, *args[1:]))
    try:
        for index in range(first):
            layers[index] = _Skipped()
        yield
    finally:
        hook.remove()
        for index in range(first):
            layers[index] = whole[index]
