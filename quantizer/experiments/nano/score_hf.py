"""Score a model in memory on held-out cases with greedy decoding."""

from __future__ import annotations

from typing import Any

import torch
from tokenizers import Tokenizer
from transformers import Qwen3ForCausalLM

from quantizer.experiments.nano import tokenizer as bpe
from quantizer.experiments.nano.cases import HeldOutCase, ModelReply, Score, read_reply, scored
from quantizer.experiments.nano.template import render


@torch.inference_mode()
def replies(
    model: Qwen3ForCausalLM,
    tokenizer: Tokenizer,
    asked: list[HeldOutCase],
    max_new: int = 160,
    batch: int = 256,
) -> list[ModelReply]:
    """A greedy reply to each case. Prompts of a batch are padded on the left."""
    model.eval()
    generator: Any = model  # its mixin's `generate` is typed for another protocol
    end, pad = bpe.token_id(tokenizer, bpe.END), bpe.token_id(tokenizer, bpe.PAD)
    out: list[ModelReply] = []
    for start in range(0, len(asked), batch):
        part = asked[start : start + batch]
        texts = [render(c.messages, c.tools, style=c.style, thinking=c.thinking) for c in part]
        prompts = [tokenizer.encode(text, add_special_tokens=False).ids for text in texts]
        width = max(map(len, prompts))
        ids = torch.tensor([[pad] * (width - len(p)) + p for p in prompts], device=model.device)
        mask = torch.tensor([[0] * (width - len(p)) + [1] * len(p) for p in prompts], device=model.device)
        made: Any = generator.generate(input_ids=ids, attention_mask=mask, max_new_tokens=max_new,
                              do_sample=False, eos_token_id=end, pad_token_id=pad)  # fmt: skip
        out += [
            read_tokens(tokenizer, row, case, end)
            for row, case in zip(made[:, width:].tolist(), part, strict=True)
        ]
    return out


def read_tokens(tokenizer: Tokenizer, ids: list[int], case: HeldOutCase, end: int) -> ModelReply:
    """The tokens that a model generated after a prompt, as a reply."""
    finished = end in ids
    kept = ids[: ids.index(end)] if finished else ids
    return read_reply(tokenizer.decode(kept, skip_special_tokens=False), case, finished)


def score(model: Qwen3ForCausalLM, tokenizer: Tokenizer, asked: list[HeldOutCase]) -> Score:
    return scored(asked, replies(model, tokenizer, asked))
