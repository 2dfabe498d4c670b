"""The parts of a causal language model of transformers, found by what they do and not by what an architecture calls them."""

import math
from typing import Any

import torch
from torch import Tensor, nn

from quantizer.core.batch import Batch
from quantizer.core.errors import SourceError


def body(model: Any) -> Any:
    """Everything but the head: token ids to the last hidden states."""
    return model.base_model


def head(model: Any) -> nn.Module:
    """The matrix that makes logits of the last hidden states."""
    part: nn.Module = model.get_output_embeddings()
    return part


def name_of(model: nn.Module, part: nn.Module) -> str:
    """A module's name in a model."""
    return next(name for name, module in model.named_modules() if module is part)


def layers_name(model: Any) -> str:
    """The name of the list of decoder layers: the outermost list that is as long as the configuration says. Raises SourceError."""
    count = model.config.get_text_config().num_hidden_layers
    for name, part in model.named_modules():
        if isinstance(part, nn.ModuleList) and len(part) == count:
            return str(name)
    raise SourceError(f"{type(model).__name__} has no list of {count} decoder layers")


def decoder_layers(model: nn.Module) -> list[nn.Module]:
    """The decoder layers of a causal language model, in order."""
    return list(model.get_submodule(layers_name(model)).children())


def hidden_states(model: nn.Module, batch: Batch) -> Tensor:
    """The last hidden states of a causal language model: [rows, tokens, width]. Without padding no mask is passed, for speed."""
    mask = None if bool(batch.attention.all()) else batch.attention
    out: Tensor = body(model)(input_ids=batch.ids, attention_mask=mask, use_cache=False).last_hidden_state
    return out


@torch.no_grad()
def logit_scale(model: Any) -> float:
    """The factor between the head's product with the last hidden states and the model's logits, measured: Granite divides,
    Cohere multiplies. Raises SourceError for any other change, such as Gemma 2's soft cap."""
    read: list[Tensor] = []
    raw = torch.linspace(-64, 64, head(model).get_parameter("weight").shape[0])

    def answer(module: nn.Module, args: tuple[Tensor, ...], out: Tensor) -> Tensor:
        read.append(args[0])
        return raw.to(out).expand_as(out)

    # A padding token's embedding may be zero, so that one token is not enough.
    ids = torch.arange(8, device=next(model.parameters()).device).unsqueeze(0)
    training, hook = model.training, head(model).register_forward_hook(answer)
    try:
        with torch.compiler.set_stance("force_eager"):
            states = body(model.eval())(input_ids=ids, use_cache=False).last_hidden_state
            logits = model(input_ids=ids, use_cache=False).logits
    finally:
        hook.remove()
        model.train(training)
    before, after = _ratio(read[0], states), _ratio(logits[0, -1], raw.to(logits))
    if before is None or after is None:
        raise SourceError(
            f"{type(model).__name__} changes its logits by more than a factor (a soft cap?), which is not trained or scored here"
        )
    return before * after


def _ratio(changed: Tensor, own: Tensor) -> float | None:
    """What a tensor was multiplied by; None if it was something else. Of numbers that overflow nothing can be said: 1."""
    changed, own = changed.float(), own.float()
    ratio = float((changed * own).sum() / own.square().sum())
    if not math.isfinite(ratio):
        return 1.0
    return round(ratio, 6) if torch.allclose(changed, ratio * own, rtol=2e-2, atol=1e-3) else None
