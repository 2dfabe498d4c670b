"""Fold AWQ's scales into the model, so that the result is plain NVFP4.

Dividing the channels of a tensor by s requires multiplying the columns of every matrix that reads it by s:

    a norm's output        its gain becomes gain / s, and EVERY layer that reads it is scaled, quantized or not
    down_proj's input      silu(gate) * up: the rows of up_proj are divided

The inputs of o_proj and out_proj have nothing before them that could absorb a scale. ModelOpt 0.47 leaves a wrong model behind:
it ignores that Qwen3.5's gain is 1 + w, and readers that are not quantized. Here the gain is measured, readers are found by
running the model, and the folded model must compute what it computed before.
"""

import copy
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Final

import torch
from torch import Tensor, nn

from quantizer.core.batch import Batch
from quantizer.core.errors import SourceError
from quantizer.layers.attach import refresh_weight_amax
from quantizer.layers.linear import NVFP4Linear, nvfp4_layers, unquantized
from quantizer.ptq.awq import TINY, AwqScale, search
from quantizer.ptq.calibrate import InputStats, set_input_amax
from quantizer.recipes.recipe import Awq

FAR: Final = 0.1
"""Relative change of an output that counts as wrong. Rounding folded weights to BF16 causes a few thousandths, a wrong
fold about 1."""
PROBE_TOKENS: Final = 64
Forward = Callable[[], Tensor]
"""Runs a few tokens without padding through the model, and returns its output."""


@dataclass(frozen=True, slots=True)
class FoldedScale:
    """One scale that was folded. into: the norm or up_proj that absorbed it. readers: the layers that were scaled.
    channels: the number with a scale other than 1. gain: the loss without a scale divided by the loss with it."""

    into: str
    readers: tuple[str, ...]
    alpha: float
    channels: int
    gain: float


@torch.no_grad()
def fold_awq(
    model: nn.Module,
    seen: dict[str, InputStats],
    run: Forward,
    settings: Awq = Awq(),  # noqa: B008 - frozen
    prefix: str = "",
) -> list[FoldedScale]:
    """Search and fold every scale that can be folded, then update the amax of weights and inputs. Raises SourceError.

    `model`: whole, or one decoder layer; `run`: finds readers and compares outputs; `prefix`: of the names in results and errors.
    """
    before = _outputs(model, run)
    with unquantized(model):
        norms = find_readers(model, run)
    layers = nvfp4_layers(model)
    done = []
    for norm, readers in norms.items():
        quantized = [name for name in readers if name in layers]
        if quantized:
            weights = [layers[name].weight for name in quantized]
            choice = search(weights, seen[quantized[0]], settings.alpha_step, settings.rounded_inputs)
            scaled = [model.get_submodule(name) for name in readers]
            factor = fold_norm(model.get_submodule(norm), scaled, choice.scale, settings.least_gain)
            done.append(_account(norm, readers, choice, factor, [seen[name] for name in quantized]))
    # An expert that no token chose has no record, and is left as it is.
    done += [
        _fold_down(model, name, seen[name], settings)
        for name in layers
        if name in seen and _has_up(model, name)
    ]
    refresh_weight_amax(model)
    set_input_amax(model, seen)
    _check_same(before, _outputs(model, run), {one.into for one in done}, prefix)
    return [
        replace(one, into=prefix + one.into, readers=tuple(prefix + name for name in one.readers))
        for one in done
    ]


@torch.no_grad()
def foldable(model: nn.Module, run: Forward) -> frozenset[str]:
    """The quantized layers for which `fold_awq` searches a scale: those that read a norm, and down_proj."""
    layers = nvfp4_layers(model)
    with unquantized(model):
        norms = find_readers(model, run)
    reading = {name for readers in norms.values() for name in readers if name in layers}
    return frozenset(reading | {name for name in layers if _has_up(model, name)})


def find_readers(model: nn.Module, run: Forward) -> dict[str, tuple[str, ...]]:
    """Norms and the linear layers that directly read their output, by name."""
    written: list[tuple[str, Tensor]] = []
    found: dict[str, list[str]] = {}

    def wrote(name: str) -> Callable[..., None]:
        return lambda module, args, out: written.append((name, out))

    def read(name: str) -> Callable[..., None]:
        def look(module: nn.Module, args: tuple[Any, ...]) -> None:
            source = next((norm for norm, out in reversed(written) if out is args[0]), None)
            if source is not None:
                found.setdefault(source, []).append(name)

        return look

    hooks = []
    for name, module in model.named_modules():
        if isinstance(module, nn.Linear):
            hooks.append(module.register_forward_pre_hook(read(name)))
        elif getattr(getattr(module, "weight", None), "ndim", 0) == 1:
            hooks.append(module.register_forward_hook(wrote(name)))
    try:
        run()
    finally:
        for hook in hooks:
            hook.remove()
    return {norm: tuple(names) for norm, names in found.items()}


@torch.no_grad()
def fold_norm(norm: nn.Module, readers: list[nn.Module], scale: Tensor, least_gain: float) -> Tensor:
    """Divide a norm's gain by a scale [in] and multiply the readers' columns by it; the scale that was applied.

    A channel is left alone if its gain would become smaller than `least_gain`: stored near zero, it would lose precision.
    """
    offset = _offset(norm)
    weight: Tensor = norm.get_parameter("weight")
    gain = weight.float() + offset
    wanted = gain / scale
    wanted = torch.where(torch.minimum(wanted.abs(), gain.abs()) < least_gain, gain, wanted)
    weight.copy_(wanted - offset)
    stored = weight.float() + offset
    factor = torch.where(stored == 0, torch.ones_like(gain), gain / stored)
    if isinstance(bias := getattr(norm, "bias", None), Tensor):
        bias.copy_(bias.float() / factor)
    for reader in readers:
        columns = reader.get_parameter("weight")
        columns.copy_(columns.float() * factor)
    return factor


def _offset(norm: nn.Module) -> int:
    """0 if a norm's gain is its weight, 1 if it is 1 + weight. From an input of 1 and -1 in turn, whose mean is 0, the gain
    is what half the difference to its negative leaves of it: no bias."""
    exact = copy.deepcopy(norm).float()
    weight = exact.get_parameter("weight")
    signs = 1 - 2 * (torch.arange(len(weight), device=weight.device) % 2)
    gain = (exact(signs.float().unsqueeze(0)) - exact(-signs.float().unsqueeze(0)))[0] / 2 * signs
    for offset in (0, 1):
        if torch.allclose(gain, weight + offset, rtol=1e-2, atol=1e-2):
            return offset
    raise SourceError(
        f"{type(norm).__name__}: its gain is neither its weight nor 1 + its weight; exclude awq"
    )


def _has_up(model: nn.Module, name: str) -> bool:
    """Whether a layer reads act(gate) * up, to which a scale of up's rows passes; not act(up), as Nemotron's."""
    parent, _, leaf = name.rpartition(".")
    parts = dict(model.get_submodule(parent).named_children())
    return leaf == "down_proj" and all(isinstance(parts.get(n), nn.Linear) for n in ("gate_proj", "up_proj"))


def _fold_down(model: nn.Module, name: str, seen: InputStats, settings: Awq) -> FoldedScale:
    down, into = model.get_submodule(name), f"{name.rpartition('.')[0]}.up_proj"
    up = model.get_submodule(into)
    assert isinstance(down, NVFP4Linear) and isinstance(up, nn.Linear)
    choice = search([down.weight], seen, settings.alpha_step, settings.rounded_inputs)
    down.weight.copy_(down.weight.float() * choice.scale)
    up.weight.copy_(up.weight.float() / choice.scale.unsqueeze(-1))
    if up.bias is not None:
        up.bias.copy_(up.bias.float() / choice.scale)
    return _account(into, (name,), choice, choice.scale, [seen])


def _account(
    into: str, readers: tuple[str, ...], choice: AwqScale, factor: Tensor, records: list[InputStats]
) -> FoldedScale:
    """Update the recorded statistics, once for layers that share a record, and describe the fold."""
    for record in {id(record): record for record in records}.values():
        record.amax = record.amax / factor.abs()
        record.total = record.total / factor.abs()
        record.rows = [(rows / factor).to(rows.dtype) for rows in record.rows]
        if record.gram is not None:
            record.gram = record.gram / (factor.unsqueeze(0) * factor.unsqueeze(1))
    worst = choice.losses[0.0]
    gain = worst / choice.losses[choice.alpha] if choice.losses[choice.alpha] else 1.0
    return FoldedScale(into, readers, choice.alpha, int((factor != 1).sum()), gain)


def probe(batch: Batch) -> Batch:
    """The first tokens of one row, without padding: some models multiply a mask into a norm's output before it is
    read."""
    length = max(1, min(PROBE_TOKENS, int(batch.attention[0].sum())))
    return Batch(*(tensor[:1, :length] for tensor in batch))


def _outputs(model: nn.Module, run: Forward) -> dict[str, Tensor]:
    """The outputs of every linear layer of the unquantized model, and of the model itself under the name ""."""
    found: dict[str, Tensor] = {}

    def keep(name: str) -> Callable[..., None]:
        return lambda module, args, out: found.update({name: out})

    linear = [(name, module) for name, module in model.named_modules() if isinstance(module, nn.Linear)]
    hooks = [module.register_forward_hook(keep(name)) for name, module in linear]
    try:
        with unquantized(model):
            found[""] = run()
    finally:
        for hook in hooks:
            hook.remove()
    return found


def _check_same(before: dict[str, Tensor], after: dict[str, Tensor], scaled: set[str], prefix: str) -> None:
    """Check that every layer returns what it returned before, except those whose rows were scaled."""
    for name in before:
        if name in scaled:
            continue
        wanted, found = before[name].float(), after[name].float()
        if found.shape != wanted.shape:  # a token between two experts chose the other one
            continue
        off = float((found - wanted).norm() / wanted.norm().clamp(min=TINY))
        if not off < FAR:
            where = f"{prefix}{name} returns" if name else f"{prefix.rstrip('.') or 'the model'} computes"
            raise SourceError(
                f"awq: after the fold {where} something else (off by {off:.0%}); leave [awq] out"
            )
