"""The parts of a causal language model of transformers, found by what they do and not by what an architecture calls them."""

import math
from typing import Any, Final

import torch
from torch import Tensor, nn

from quantizer.core.batch import Batch
from quantizer.core.errors import SourceError

LARGE: Final = 64.0
"""The largest logit that `logit_scale` tries: more than any soft cap leaves."""


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
def logits(model: Any, hidden: Tensor) -> Tensor:
    """The logits of last hidden states, [n, width] to [n, vocabulary], by the model's own code behind its body: with Granite's
    factor, Gemma 2's soft cap. The decoder layers are not run, and may be gone."""
    from transformers.modeling_outputs import BaseModelOutputWithPastAndCrossAttentions

    part = model.get_decoder()
    out: Any = BaseModelOutputWithPastAndCrossAttentions(last_hidden_state=hidden.unsqueeze(0))
    out.router_logits = None
    part.forward = lambda *_, **__: out
    try:
        found: Tensor = model(input_ids=torch.zeros(1, 1, dtype=torch.int64, device=hidden.device)).logits[0]
    finally:
        del part.forward
    return found


@torch.no_grad()
def logit_scale(model: Any) -> float:
    """The factor between the head's product with the last hidden states and the model's logits, measured: Granite divides,
    Cohere multiplies. Raises SourceError for any other change, such as Gemma 2's soft cap."""
    last = head(model)
    weight = last.get_parameter("weight")
    hidden = torch.linspace(-1, 1, 8 * weight.shape[1]).view(8, -1).to(weight)
    hidden *= LARGE / last(hidden).abs().amax()
    raw, own = last(hidden).float(), logits(model, hidden).float()
    ratio = float((own * raw).sum() / raw.square().sum())
    if not math.isfinite(ratio):  # of numbers that overflow nothing can be said
        return 1.0
    if not torch.allclose(own, ratio * raw, rtol=2e-2, atol=LARGE / 1000):
        raise SourceError(
            f"{type(model).__name__} changes its logits by more than a factor (a soft cap?): such models cannot be trained"
        )
    return round(ratio, 6)
