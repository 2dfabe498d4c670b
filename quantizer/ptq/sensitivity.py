"""How much each group of layers harms the model when it alone is quantized, by what the assistant says.

The harm is the divergence KL(BF16 || NVFP4 in this group) of the next-token distributions, summed over the tokens that
the assistant wrote in the scored conversations and nowhere else: there are the manners. One pass: the reference, then
one forward for each group and batch, and of that only the layers from the group's on, since nothing before it has
changed.

Scores are written down as they come; a killed run goes on where it was, and a ledger of another run is refused.
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
from quantizer.ptq.knapsack import Group, Mix

Groups = Sequence[tuple[str, ...]]


@torch.no_grad()
def score(
    model: nn.Module,
    groups: Groups,
    batches: Sequence[Batch],
    ledger: Ledger,
    track: Callable[[Sequence[tuple[str, ...]]], Iterable[tuple[str, ...]]] = iter,
) -> list[Group]:
    """The divergence that each group makes alone, in the order given.

    model: calibrated, its block scales set. Raises DataError if the assistant says nothing in the batches.
    """
    layers, missing = nvfp4_layers(model), [group for group in groups if group not in ledger.known]
    if missing and not any(bool(batch.foretelling.any()) for batch in batches):
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
    return [Group(g, sum(layers[name].weight.numel() for name in g), ledger.known[g]) for g in groups]


def keep_in_bf16(model: nn.Module, groups: Groups, mix: Mix) -> tuple[str, ...]:
    """Give the groups of a mix their plain layers back; their names."""
    names = tuple(name for index in mix.kept for name in groups[index])
    detach(model, names)
    return names


class Ledger:
    """Scores on disk, a line each, under the run that they belong to. With no path they live in memory."""

    def __init__(self, path: Path | None, run: dict[str, Any]) -> None:
        """run: what the scores depend on, as JSON values. Raises CheckpointError if the file is of another run."""
        self.path, self.known = path, dict[tuple[str, ...], float]()
        head = json.dumps({"run": run}, sort_keys=True)
        if path is None:
            return
        text = path.read_text(encoding="utf-8") if path.exists() else ""
        whole = text[: text.rfind("\n") + 1]  # the last line of a killed run may be cut
        if not whole:
            path.write_text(head + "\n", encoding="utf-8")
            return
        first, *lines = whole.splitlines()
        if first != head:
            raise CheckpointError(f"{path}: scores of another run; remove it to begin anew")
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
            raise CheckpointError(f"{self.path}: is damaged; remove it to begin anew") from None


class _Pass:
    """A batch that has been through the unquantized model: what each decoder layer read, and what came out."""

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
        """KL of the reference from the model as it is now, summed; the group is what has changed in it."""
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
    """In the place of a decoder layer whose output is known already."""

    def forward(self, hidden: Tensor, *args: Any, **more: Any) -> Tensor:
        return hidden


@contextmanager
def _from_layer(model: nn.Module, first: int, hidden: Tensor) -> Iterator[None]:
    """Within a `with` block the model begins at a decoder layer, with what it read before."""
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
