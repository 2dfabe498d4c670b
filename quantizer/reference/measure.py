"""How far a model is from another on the same conversations: token by token, and by what each replies.

Tokens are those that the assistant wrote, each foretold from the true text before it. Replies are greedy.
"""

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from gates.reply.reply import Reply
from quantizer.core.decoder import hidden_states, logits
from quantizer.data.batches import batches, collate
from quantizer.data.conversation import Conversation
from quantizer.data.judge import ExpectedMessage, find_faults
from quantizer.data.render import Renderer, TrainingSample

LONGEST: Final = 256
"""Tokens of a reply."""
TEXTS, SLICE = 8_192, 1_024
"""Padded tokens that are read at once; tokens whose logits are."""
_CALL: Final = re.compile(r"<tool_call>\s*(.*?)\s*</tool_call>", re.DOTALL)
Check = Callable[[str, bool], bool]
"""Whether a reply is right, from its text and whether it ended."""
Track = Callable[[Sequence[Any]], Iterable[Any]]


class Question(NamedTuple):
    """A prompt, and the check of its reply. kind: exact (calls) or speech. row: the number of its conversation."""

    row: int
    kind: str
    prompt: list[int]
    check: Check


class Distances(NamedTuple):
    """By token, float64 [tokens]. kl: KL(before || now) in nats. same: whether both models find the same token the likeliest.
    right, right_before: whether each finds the written one so. loss, loss_before: less the logarithm of its probability."""

    kl: np.ndarray
    same: np.ndarray
    right: np.ndarray
    right_before: np.ndarray
    loss: np.ndarray
    loss_before: np.ndarray


@torch.no_grad()
def states(
    model: nn.Module, samples: Sequence[TrainingSample], pad: int, track: Track = iter, at_once: int = TEXTS
) -> Tensor:
    """The last hidden states that foretell the learned tokens of samples, in their order: [tokens, width]."""
    device, parts = next(model.parameters()).device, {}
    for chosen in track(batches([len(sample.ids) for sample in samples], at_once)):
        batch = collate(samples, chosen, pad).to(device)
        hidden = hidden_states(model, batch)[:, :-1]
        for row, i in enumerate(chosen):
            parts[i] = hidden[row, batch.loss_mask[row]]
    return torch.cat([parts[i] for i in range(len(samples))])


@torch.no_grad()
def distances(before: tuple[nn.Module, Tensor], now: tuple[nn.Module, Tensor], written: Tensor) -> Distances:
    """From a model to another. Each with its states at the same tokens, `written`: int64 [tokens]."""
    found = []
    for one, other, target in zip(*(part.split(SLICE) for part in (before[1], now[1], written)), strict=True):
        old, new = (
            F.log_softmax(logits(model, part).float(), -1)
            for model, part in ((before[0], one), (now[0], other))
        )
        kl = F.kl_div(new, old, reduction="none", log_target=True).sum(-1).clamp(min=0)
        best, best_before = new.argmax(-1), old.argmax(-1)
        loss, loss_before = (-part.gather(1, target[:, None])[:, 0] for part in (new, old))
        columns = (kl, best == best_before, best == target, best_before == target, loss, loss_before)
        found.append(torch.stack([column.double() for column in columns]).cpu().numpy())
    return Distances(*np.concatenate(found, axis=1))


# ------------------------------------------------------------------------------------------------ replies


def turns(renderer: Renderer, conversations: Iterable[Conversation]) -> list[Question]:
    """Every turn of the assistant in conversations."""
    found = []
    for number, row in enumerate(conversations):
        for place, message in enumerate(row.messages):
            if message["role"] == "assistant":
                calls = [call["function"] for call in message.get("tool_calls") or ()]
                prompt = renderer.encode(renderer.prompt(row, place))
                kind, check = ("exact", called(calls)) if calls else ("speech", _spoken(row.tools))
                found.append(Question(number, kind, prompt, check))
    return found


@torch.no_grad()
def right_replies(
    model: Any, questions: Sequence[Question], renderer: Renderer, track: Track = iter
) -> list[bool]:
    """Whether the model's reply to each is right."""
    device, made = next(model.parameters()).device, {}
    for group in track(batches([len(one.prompt) for one in questions], TEXTS)):
        prompts = [questions[i].prompt for i in group]
        width = max(len(prompt) for prompt in prompts)
        ids = torch.tensor([[renderer.pad] * (width - len(one)) + one for one in prompts], device=device)
        seen = torch.tensor([[0] * (width - len(one)) + [1] * len(one) for one in prompts], device=device)
        out = model.generate(input_ids=ids, attention_mask=seen, do_sample=False, max_new_tokens=LONGEST,
                             eos_token_id=sorted(renderer.ends), pad_token_id=renderer.pad)  # fmt: skip
        for i, line in zip(group, out[:, width:].tolist(), strict=True):
            end = next((at for at, token in enumerate(line) if token in renderer.ends), None)
            made[i] = questions[i].check(renderer.tokenizer.decode(line[:end]), end is not None)
    return [made[i] for i in range(len(questions))]


def called(wanted: Sequence[Mapping[str, Any]]) -> Check:
    """The check of a reply that should make these calls, as <tool_call> and JSON."""

    def check(text: str, ended: bool) -> bool:
        try:
            made = [json.loads(call) for call in _CALL.findall(text)]
        except ValueError:
            return False
        sought = [{"name": one["name"], "arguments": one["arguments"]} for one in wanted]
        return ended and made == sought

    return check


def _spoken(tools: Sequence[Mapping[str, Any]]) -> Check:
    def check(text: str, ended: bool) -> bool:
        reply = Reply(200, text.strip(), finish_reason="stop", done=True)
        faults = "<tool_call>" in text or find_faults(reply, ExpectedMessage(None, tools))
        return ended and not faults

    return check
