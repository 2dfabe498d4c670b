"""What a model says, how likely it finds facts, and how far it is from its BF16, token by token.

Replies are greedy. `Reference` is what the BF16 model said, so that knowledge and manners are compared where BF16 was as sure.
"""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from gates.reply.reply import Reply
from quantizer.data import conversation as rows
from quantizer.data.batches import batches
from quantizer.data.judge import ExpectedMessage, find_faults
from quantizer.data.render import Renderer

PROSE: Final = Path(__file__).parents[2] / "gates" / "corpus" / "real.jsonl.gz"
ANNIE: Final = "You are Annie, a voice assistant. Your words are spoken aloud, so write plain sentences only."
ROLES: Final = ("system", "user", "assistant")
LIMITS: Final = {"call": 72, "speech": 72, "fact": 24}
"""Tokens of a reply; the longest in the held-out conversations has 53."""
PROMPTS, TEXTS, SLICE = 131_072, 65_536, 2_048
"""Padded tokens of prompts that are answered at once and of texts that are read at once; tokens whose logits are."""
MARGINS: Final = (0.5, 1.0, 2.0, 4.0, 8.0)
"""Borders of BF16's lead of the likeliest token over the second, in nats: how hard a token is to flip."""
_CALL: Final = re.compile(r"<tool_call>\s*(.*?)\s*</tool_call>", re.DOTALL)
Texts = Sequence[Sequence[int]]
Check = Callable[[str, bool], dict[str, bool]]
"""From a reply's text and whether it ended: what of it is right, by name."""


class Question(NamedTuple):
    """A prompt, and the check of its reply. kind: of `LIMITS`. stem, answers: of a fact, its beginning and four ends, the right
    one first."""

    kind: str
    prompt: list[int]
    check: Check
    stem: Sequence[int] = ()
    answers: Texts = ()


class Reference(NamedTuple):
    """The BF16 model on some texts of some kinds: its last states from each start on, and its output matrix."""

    texts: Texts
    starts: Sequence[int]
    kinds: Sequence[str]
    hidden: Tensor
    head: Tensor


def turns(renderer: Renderer, path: Path) -> list[Question]:
    """Every turn of the assistant in held-out conversations."""
    found = []
    for row in rows.read(path):
        for place, message in enumerate(row.messages):
            if message["role"] == "assistant":
                calls = [call["function"] for call in message.get("tool_calls") or ()]
                prompt = renderer.encode(renderer.prompt(row, place))
                check = called(calls) if calls else _spoken(row.tools)
                found.append(Question("call" if calls else "speech", prompt, check))
    return found


def facts(renderer: Renderer) -> list[Question]:
    """Facts to say, and to choose among four."""
    found = []
    for relation in json.loads(Path(__file__).with_name("facts.json").read_text("utf-8")):
        answers = list(dict.fromkeys(relation["pairs"].values()))
        for subject, answer in relation["pairs"].items():
            said = (ANNIE, relation["ask"].format(subject), ".")
            talk = [{"role": role, "content": words} for role, words in zip(ROLES, said, strict=True)]
            prompt = renderer.encode(renderer.prompt(rows.from_row({"messages": talk}), 2))
            stem = relation["stem"].format(subject)
            place = answers.index(answer)
            ends = [renderer.encode(f" {answers[(place + step) % len(answers)]}") for step in range(4)]
            opened = renderer.encode(stem[0].upper() + stem[1:])
            found.append(Question("fact", prompt, _names(answer), opened, ends))
    return found


def prose(renderer: Renderer, count: int = 96) -> list[list[int]]:
    """Ordinary texts of others."""
    with gzip.open(PROSE, "rt", encoding="utf-8") as file:
        long = [text for line in file if len(text := json.loads(line)["text"]) > 400]
    return [renderer.encode(text)[:192] for text in long[:: max(1, len(long) // count)][:count]]


@torch.no_grad()
def replies(model: Any, questions: list[Question], renderer: Renderer) -> list[list[int]]:
    """What the model says to each, up to and with its end of turn."""
    device, made = next(model.parameters()).device, {}
    for limit in sorted({LIMITS[one.kind] for one in questions}):
        alike = [i for i, one in enumerate(questions) if LIMITS[one.kind] == limit]
        for group in batches([len(questions[i].prompt) for i in alike], PROMPTS):
            prompts = [questions[alike[place]].prompt for place in group]
            width = max(len(prompt) for prompt in prompts)
            ids = torch.tensor([[renderer.pad] * (width - len(one)) + one for one in prompts], device=device)
            seen = torch.tensor([[0] * (width - len(one)) + [1] * len(one) for one in prompts], device=device)
            out = model.generate(input_ids=ids, attention_mask=seen, do_sample=False, max_new_tokens=limit,
                                 eos_token_id=sorted(renderer.ends), pad_token_id=renderer.pad)  # fmt: skip
            for place, line in zip(group, out[:, width:].tolist(), strict=True):
                end = next((at for at, token in enumerate(line) if token in renderer.ends), len(line) - 1)
                made[alike[place]] = line[: end + 1]
    return [made[i] for i in range(len(questions))]


def judged(questions: list[Question], said: Texts, renderer: Renderer) -> dict[str, str]:
    """Of each check a string of 0 and 1, in the order of the questions that have it."""
    found: dict[str, str] = {}
    for question, ids in zip(questions, said, strict=True):
        ended = ids[-1] in renderer.ends
        text = renderer.tokenizer.decode(ids[:-1] if ended else ids)
        for name, right in question.check(text, ended).items():
            found[name] = found.get(name, "") + str(int(right))
    return found


@torch.no_grad()
def chosen(model: Any, questions: list[Question], pad: int) -> str:
    """Whether the right answer to each fact is the likeliest of four, by its mean token; a string of 0 and 1."""
    pairs = [(one, answer) for one in questions for answer in one.answers]
    texts = [[*one.prompt, *one.stem, *answer] for one, answer in pairs]
    hidden = states(model, texts, [len(one.prompt) + len(one.stem) for one, _ in pairs], pad)
    wanted = torch.tensor([token for _, answer in pairs for token in answer], device=hidden.device)
    likely = [F.log_softmax(F.linear(part, model.lm_head.weight).float(), -1).gather(1, want[:, None])[:, 0]
              for part, want in zip(hidden.split(SLICE), wanted.split(SLICE), strict=True)]  # fmt: skip
    each = torch.cat(likely).split([len(answer) for _, answer in pairs])
    best = torch.stack([one.mean() for one in each]).view(-1, 4).argmax(1)
    return "".join(str(int(place == 0)) for place in best.tolist())


@torch.no_grad()
def states(model: Any, texts: Texts, starts: Sequence[int], pad: int) -> Tensor:
    """The last hidden states that foretell each text's tokens from its start on: [all of them, width], in order."""
    device, parts = next(model.parameters()).device, {}
    for group in batches([len(text) for text in texts], TEXTS):
        width = max(len(texts[i]) for i in group)  # padded at the right, where no layer looks
        ids = torch.tensor([[*texts[i], *[pad] * (width - len(texts[i]))] for i in group], device=device)
        hidden = model.model(input_ids=ids, use_cache=False).last_hidden_state
        for row, i in enumerate(group):
            parts[i] = hidden[row, starts[i] - 1 : len(texts[i]) - 1].clone()
    return torch.cat([parts[i] for i in range(len(texts))])


def refer(model: Any, questions: list[Question], said: Texts, other: Texts, pad: int) -> Reference:
    """The BF16 model at its own replies, and at other texts."""
    texts = [[*one.prompt, *ids] for one, ids in zip(questions, said, strict=True)] + [*map(list, other)]
    starts = [len(one.prompt) for one in questions] + [1] * len(other)
    kinds = [one.kind for one in questions] + ["prose"] * len(other)
    return Reference(
        texts, starts, kinds, states(model, texts, starts, pad), model.lm_head.weight.detach().clone()
    )


@torch.no_grad()
def compared(model: Any, reference: Reference, pad: int) -> dict[str, Any]:
    """kl: by kind, with its standard error over texts. by_margin: tokens, and those whose likeliest changed, by kind and by how
    sure BF16 was."""
    hidden, found = states(model, reference.texts, reference.starts, pad), []
    for ours, theirs in zip(hidden.split(SLICE), reference.hidden.split(SLICE), strict=True):
        new = F.log_softmax(F.linear(ours, model.lm_head.weight).float(), -1)
        old = F.log_softmax(F.linear(theirs, reference.head).float(), -1)
        best, place = old.topk(2, dim=-1)
        divergence = F.kl_div(new, old, reduction="none", log_target=True).sum(-1)
        columns = (divergence, new.argmax(-1) != place[:, 0], best[:, 0] - best[:, 1])
        found.append(torch.stack([column.double() for column in columns], 1).cpu().numpy())
    lengths = [len(text) - start for text, start in zip(reference.texts, reference.starts, strict=True)]
    table = np.concatenate(found)
    parts = np.split(table, np.cumsum(lengths)[:-1])
    kinds, sure = np.repeat(np.array(reference.kinds), lengths), np.digitize(table[:, 2], MARGINS)
    out: dict[str, Any] = {"kl": {}, "by_margin": {}}
    for kind in sorted(set(reference.kinds)):
        sums = np.array([[part[:, 0].sum(), len(part)] for part, one in zip(parts, reference.kinds, strict=True) if one == kind])  # fmt: skip
        mean = sums[:, 0].sum() / sums[:, 1].sum()
        error = np.sqrt(((sums[:, 0] - mean * sums[:, 1]) ** 2).sum()) / sums[:, 1].sum()
        out["kl"][kind] = [round(float(mean), 5), round(float(error), 5)]
        at = [(kinds == kind) & (sure == level) for level in range(len(MARGINS) + 1)]
        out["by_margin"][kind] = [[int(some.sum()), int(table[some, 1].sum())] for some in at]
    return out


def called(wanted: Sequence[Mapping[str, Any]]) -> Check:
    def check(text: str, ended: bool) -> dict[str, bool]:
        made = [_object(call) or {} for call in _CALL.findall(text)]
        named = ended and [one.get("name") for one in made] == [one["name"] for one in wanted]
        same = [one.get("arguments") for one in made] == [one["arguments"] for one in wanted]
        return {"tool": named, "exact": named and same}

    return check


def _spoken(tools: Sequence[Mapping[str, Any]]) -> Check:
    def check(text: str, ended: bool) -> dict[str, bool]:
        reply = Reply(200, text.strip(), finish_reason="stop", done=True)
        called = "<tool_call>" in text
        return {"speech": ended and not called and not find_faults(reply, ExpectedMessage(None, tools))}

    return check


def _names(answer: str) -> Check:
    said = re.compile(rf"\b{re.escape(answer)}\b", 0 if len(answer) < 3 else re.IGNORECASE)
    return lambda text, ended: {"said": bool(said.search(text))}


def _object(text: str) -> dict[str, Any] | None:
    try:
        value = json.loads(text)
    except ValueError:
        return None
    return value if isinstance(value, dict) else None
