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

from gates.contracts.case import Case
from gates.detect.catalogue import GATES
from gates.reply.reply import Reply, ReplyCall
from quantizer.core.decoder import hidden_states, logits
from quantizer.data.batches import batches, collate
from quantizer.data.conversation import Conversation, Message
from quantizer.data.judge import find_faults
from quantizer.data.render import Renderer, TrainingSample

LONGEST: Final = 128
"""Tokens of a reply."""
TEXTS, PROMPTS, SLICE = 8_192, 32_768, 1_024
"""Padded tokens that are read at once, or answered; tokens whose logits are."""
_CALL: Final = re.compile(r"<tool_call>\s*(.*?)\s*</tool_call>", re.DOTALL)
Check = Callable[[str, bool], bool]
"""Whether a reply is right, from its text and whether it ended."""
Track = Callable[[Sequence[Any]], Iterable[Any]]


class Question(NamedTuple):
    """A prompt, and the check of its reply. kind: exact (calls), speech, or that of a conversation which says what it expects. row: the
    number of its conversation."""

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
                prompt = renderer.encode(renderer.prompt(row, place))
                kind, check = "speech", _spoken(row.tools)
                if row.expect and place == len(row.messages) - 1:
                    kind, check = row.kind, expected(row.tools, row.expect, row.messages[:place])
                elif calls := [call["function"] for call in message.get("tool_calls") or ()]:
                    kind, check = (
                        "exact",
                        expected(row.tools, {"calls": _accepted(calls)}, row.messages[:place]),
                    )
                found.append(Question(number, kind, prompt, check))
    return found


@torch.no_grad()
def right_replies(
    model: Any, questions: Sequence[Question], renderer: Renderer, track: Track = iter
) -> list[bool]:
    """Whether the model's reply to each is right."""
    device, made = next(model.parameters()).device, {}
    for group in track(batches([len(one.prompt) for one in questions], PROMPTS)):
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


def _accepted(calls: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    return [
        {"name": one["name"], "arguments": {key: [value] for key, value in one["arguments"].items()}}
        for one in calls
    ]


def expected(
    tools: Sequence[Mapping[str, Any]], expect: Mapping[str, Any], asked: Sequence[Message]
) -> Check:
    """The check of a reply by the gates that judge what is expected, as in a gate's case; calls are <tool_call> and JSON."""
    case = Case("", (), tuple(asked), tools=tuple(tools), expect=expect)
    gates = [gate for gate in GATES.values() if gate.expects in expect]

    def check(text: str, ended: bool) -> bool:
        try:
            made = [json.loads(call) for call in _CALL.findall(text)]
            calls = [(str(one["name"]), json.dumps(one["arguments"])) for one in made]
        except (ValueError, KeyError, TypeError):
            return False
        parts = tuple(ReplyCall(i, f"call_{i}", *call) for i, call in enumerate(calls))
        reason = "tool_calls" if parts else "stop"
        reply = Reply(200, _CALL.sub("", text).strip(), calls=parts, finish_reason=reason, done=True)
        return ended and not any(gate.findings(case, reply) for gate in gates)

    return check


def _spoken(tools: Sequence[Mapping[str, Any]]) -> Check:
    case = Case("", (), (), tools=tuple(tools))

    def check(text: str, ended: bool) -> bool:
        reply = Reply(200, text.strip(), finish_reason="stop", done=True)
        faults = "<tool_call>" in text or find_faults(reply, case)
        return ended and not faults

    return check
