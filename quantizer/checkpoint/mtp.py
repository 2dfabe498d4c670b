"""The multi-token-prediction head of a Qwen3.5 folder: one more decoder layer, by which an engine drafts the next tokens.

    mtp.fc                        joins the embedding of a token with the last hidden state: [width, 2 * width]
    mtp.pre_fc_norm_embedding, _hidden    norms of the two
    mtp.layers.0.*                a decoder layer with full attention
    mtp.norm                      before the language model's own head

transformers does not load it, so it is carried byte for byte. An engine checks every draft, so a head that no longer fits
costs speed only. Source: vllm/model_executor/models/qwen3_5_mtp.py; llama.cpp, conversion/qwen.py (_Qwen35MtpMixin).
"""

import math
import re
from collections.abc import Iterable
from typing import Any, Final

from quantizer.checkpoint.source import Source

PREFIXES: Final = ("mtp.", "model.mtp.")
NEEDED: Final = ("fc.weight", "norm.weight", "pre_fc_norm_embedding.weight", "pre_fc_norm_hidden.weight")
LAYER_NEEDED: Final = (
    "input_layernorm.weight",
    "post_attention_layernorm.weight",
    *(f"self_attn.{part}.weight" for part in ("q_proj", "k_proj", "v_proj", "o_proj", "q_norm", "k_norm")),
    *(f"mlp.{part}.weight" for part in ("gate_proj", "up_proj", "down_proj")),
)
_LAYER: Final = re.compile(r"layers\.(\d+)\.")


def inside(name: str) -> str | None:
    """A tensor's name within the head, such as "fc.weight"; None for a tensor of another part."""
    for prefix in PREFIXES:
        if name.startswith(prefix):
            return name.removeprefix(prefix)
    return None


def whole_head(names: Iterable[str]) -> bool:
    """Whether a folder with these tensors has a whole head of one layer, which is all that engines draft with."""
    held = {name for name in map(inside, names) if name}
    layers = {found[1] for name in held if (found := _LAYER.match(name))}
    return layers == {"0"} and held >= {*NEEDED, *(f"layers.0.{part}" for part in LAYER_NEEDED)}


def mtp_facts(source: Source, trained: bool) -> dict[str, Any] | None:
    """What an artefact says of the head, as JSON values; None without one. `trained`: the body was trained, and the head was not."""
    held = [name for name in source.folder.tensors if inside(name)]
    promised = int(source.folder.text_config.get("mtp_num_hidden_layers") or 0)
    if not held:
        lost = "config.json names a head that the source folder does not hold: do not draft with it"
        return {"tensors": 0, "state": lost} if promised else None
    state = "carried unchanged and unquantized"
    if trained:
        state += (
            "; not trained with the body: fewer of its drafts may be accepted, answers stay the model's own"
        )
    if not whole_head(held):
        state += "; not a whole head of one layer: do not draft with it"
    parameters = sum(math.prod(source.folder.tensors[name].shape) for name in held)
    return {"tensors": len(held), "parameters": parameters, "state": state}
